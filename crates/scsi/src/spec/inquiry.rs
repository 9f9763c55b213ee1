//! Standard INQUIRY data and the pages of vital product data (SPC-6, SBC-4, ZBC-2).

use super::bytes::{put, text};

/// The peripheral device type of a host-managed zoned block device.
pub const HOST_MANAGED: u8 = 0x14;
/// The peripheral device type of a direct access block device.
pub const DIRECT_ACCESS: u8 = 0x00;
/// The peripheral qualifier and type where no unit is.
pub const NO_DEVICE: u8 = 0x7f;

/// Numbers of pages of vital product data.
pub mod page {
    /// Supported VPD pages.
    pub const SUPPORTED: u8 = 0x00;
    /// Unit serial number.
    pub const SERIAL: u8 = 0x80;
    /// Device identification.
    pub const IDENTIFICATION: u8 = 0x83;
    /// Block limits.
    pub const BLOCK_LIMITS: u8 = 0xb0;
    /// Block device characteristics.
    pub const CHARACTERISTICS: u8 = 0xb1;
    /// Logical block provisioning.
    pub const PROVISIONING: u8 = 0xb2;
    /// Zoned block device characteristics.
    pub const ZONED_CHARACTERISTICS: u8 = 0xb6;
}

/// Version descriptors: SAM-6, iSCSI, SPC-5, SBC-4 and ZBC, of no certain revision.
const VERSIONS: [u16; 5] = [0x00c0, 0x0960, 0x05c0, 0x0600, 0x0620];

/// Standard INQUIRY data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StandardInquiry<'a> {
    /// The peripheral qualifier and device type.
    pub device: u8,
    /// The vendor.
    pub vendor: &'a str,
    /// The product.
    pub product: &'a str,
    /// The version of the product.
    pub revision: &'a str,
}

impl StandardInquiry<'_> {
    /// The length of the data.
    pub const LEN: usize = 96;

    /// Encodes the data. Only a zoned unit claims a version of ZBC.
    pub fn encode(&self) -> [u8; StandardInquiry::LEN] {
        let mut b = [0; StandardInquiry::LEN];
        b[0] = self.device;
        // VERSION: SPC-5, the newest with a number.
        b[2] = 7;
        // HISUP and the response data format.
        b[3] = 0x12;
        b[4] = (StandardInquiry::LEN - 5) as u8;
        // CMDQUE.
        b[7] = 2;
        put(&mut b, 8, &text::<8>(self.vendor));
        put(&mut b, 16, &text::<16>(self.product));
        put(&mut b, 32, &text::<4>(self.revision));
        let zoned = self.device == HOST_MANAGED;
        let versions = VERSIONS.iter().take(if zoned { 5 } else { 4 });
        for (i, version) in versions.enumerate() {
            put(&mut b, 58 + 2 * i, &version.to_be_bytes());
        }
        b
    }
}

/// Puts the header of a page of vital product data before `body`.
pub fn encode_page(device: u8, page: u8, body: &[u8]) -> Vec<u8> {
    let mut b = vec![device, page];
    b.extend((body.len() as u16).to_be_bytes());
    b.extend(body);
    b
}

/// A designator of the device identification page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Designator<'a> {
    /// A vendor and a serial number, for people.
    Vendor(&'a str, &'a str),
    /// A locally assigned NAA name of the unit; the highest four bits are not used.
    Naa(u64),
    /// The UUID of the unit.
    Uuid([u8; 16]),
    /// The relative number of the port that the command came by.
    RelativePort(u16),
    /// The name of that port, for iSCSI.
    PortName(&'a str),
}

impl Designator<'_> {
    /// Encodes the designator behind others.
    pub fn encode_to(&self, b: &mut Vec<u8>) {
        const BINARY: u8 = 1;
        const ASCII: u8 = 2;
        const UTF8: u8 = 3;
        // PIV and the association with the port; the protocol identifier of iSCSI is 5.
        const PORT: u8 = 0x80 | 0x10;
        const ISCSI: u8 = 5 << 4;
        let (code_set, kind, data) = match *self {
            Designator::Vendor(vendor, serial) => {
                let mut data = text::<8>(vendor).to_vec();
                data.extend(serial.bytes());
                (ASCII, 1, data)
            }
            Designator::Naa(n) => {
                (BINARY, 3, (3 << 60 | n & (u64::MAX >> 4)).to_be_bytes().to_vec())
            }
            Designator::Uuid(uuid) => (BINARY, 0x0a, [&[0x10, 0][..], &uuid].concat()),
            Designator::RelativePort(n) => {
                let [high, low] = n.to_be_bytes();
                (ISCSI | BINARY, PORT | 4, vec![0, 0, high, low])
            }
            Designator::PortName(name) => {
                let mut data = name.as_bytes().to_vec();
                // The name ends with a null and is padded to a multiple of four.
                data.resize((data.len() + 1).next_multiple_of(4), 0);
                (ISCSI | UTF8, PORT | 8, data)
            }
        };
        b.extend([code_set, kind, 0, data.len() as u8]);
        b.extend(data);
    }
}

/// Block limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockLimits {
    /// Blocks in which transfers are best.
    pub granularity: u16,
    /// Most blocks of a transfer. 0: no limit.
    pub max_transfer: u32,
    /// Most blocks of an UNMAP. 0: there is no UNMAP.
    pub max_unmap: u32,
    /// Most ranges of an UNMAP.
    pub max_unmap_ranges: u32,
    /// Most blocks of a WRITE SAME.
    pub max_write_same: u64,
}

impl BlockLimits {
    /// Encodes the body of the page.
    pub fn encode(&self) -> [u8; 60] {
        let mut b = [0; 60];
        // WSNZ: WRITE SAME takes no length of 0.
        b[0] = 1;
        put(&mut b, 2, &self.granularity.to_be_bytes());
        put(&mut b, 4, &self.max_transfer.to_be_bytes());
        put(&mut b, 8, &self.max_transfer.to_be_bytes());
        put(&mut b, 16, &self.max_unmap.to_be_bytes());
        put(&mut b, 20, &self.max_unmap_ranges.to_be_bytes());
        put(&mut b, 32, &self.max_write_same.to_be_bytes());
        b
    }
}

/// The medium rotation rate of a medium that does not turn.
pub const NOT_ROTATING: u16 = 1;

/// Encodes the body of the block device characteristics page. The type of the device says that it is zoned; the field
/// ZONED is for others.
pub fn encode_characteristics(rotation_rate: u16) -> [u8; 60] {
    let mut b = [0; 60];
    put(&mut b, 0, &rotation_rate.to_be_bytes());
    b
}

/// Encodes the body of the logical block provisioning page: whether the unit has UNMAP. Unmapped blocks have any data.
pub fn encode_provisioning(unmap: bool) -> [u8; 4] {
    // LBPU, and the type of provisioning: thin, or full.
    if unmap { [0, 0x80, 2, 0] } else { [0; 4] }
}

/// Encodes the body of the zoned block device characteristics page. `unrestricted_reads`: URSWRZ, blocks behind the
/// write pointer can be read. `max_open`: most open sequential zones; `None`: no limit.
pub fn encode_zoned_characteristics(unrestricted_reads: bool, max_open: Option<u32>) -> [u8; 60] {
    let mut b = [0; 60];
    b[0] = u8::from(unrestricted_reads);
    // The optimal numbers are about sequential write preferred zones; these are not reported.
    put(&mut b, 4, &u32::MAX.to_be_bytes());
    put(&mut b, 8, &u32::MAX.to_be_bytes());
    put(&mut b, 12, &max_open.unwrap_or(u32::MAX).to_be_bytes());
    b
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The offsets are those that sg_inq and sg_vpd of sg3_utils decode.
    #[test]
    fn standard_data_have_their_fields_where_the_table_has_them() {
        let data = StandardInquiry {
            device: HOST_MANAGED,
            vendor: "ZONEPLUG",
            product: "disk",
            revision: "1",
        };
        let b = data.encode();
        assert_eq!(b[..8], [0x14, 0, 7, 0x12, 91, 0, 0, 2]);
        assert_eq!(&b[8..36], b"ZONEPLUGdisk            1   ");
        assert_eq!(b[58..70], [0, 0xc0, 9, 0x60, 5, 0xc0, 6, 0, 6, 0x20, 0, 0]);
        let block = StandardInquiry { device: DIRECT_ACCESS, ..data }.encode();
        assert_eq!(block[64..70], [6, 0, 0, 0, 0, 0], "no version of ZBC");
    }

    #[test]
    fn pages_have_their_fields_where_the_tables_have_them() {
        let zoned = encode_page(
            HOST_MANAGED,
            page::ZONED_CHARACTERISTICS,
            &encode_zoned_characteristics(true, Some(128)),
        );
        assert_eq!(zoned.len(), 64);
        assert_eq!(zoned[..12], [0x14, 0xb6, 0, 60, 1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]);
        assert_eq!(zoned[12..20], [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 128]);
        let limits = BlockLimits {
            granularity: 8,
            max_transfer: 256,
            max_unmap: 0x01020304,
            max_unmap_ranges: 9,
            max_write_same: 7,
        };
        let b = encode_page(0, page::BLOCK_LIMITS, &limits.encode());
        assert_eq!(b[4..12], [1, 0, 0, 8, 0, 0, 1, 0]);
        assert_eq!(b[20..28], [1, 2, 3, 4, 0, 0, 0, 9]);
        assert_eq!(b[36..44], [0, 0, 0, 0, 0, 0, 0, 7]);
        assert_eq!(encode_characteristics(7200)[..2], [0x1c, 0x20]);
        assert_eq!(encode_provisioning(true), [0, 0x80, 2, 0]);
    }

    #[test]
    fn designators_name_the_unit_and_the_port() {
        let mut b = Vec::new();
        Designator::Naa(0xf123_4567_89ab_cdef).encode_to(&mut b);
        assert_eq!(b, [1, 3, 0, 8, 0x31, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef]);
        b.clear();
        Designator::Uuid([7; 16]).encode_to(&mut b);
        assert_eq!((b.len(), &b[..7]), (22, &[1, 10, 0, 18, 0x10, 0, 7][..]));
        b.clear();
        Designator::RelativePort(0x102).encode_to(&mut b);
        Designator::PortName("iqn.a").encode_to(&mut b);
        assert_eq!(b[..8], [0x51, 0x94, 0, 4, 0, 0, 1, 2]);
        assert_eq!(b[8..], [0x53, 0x98, 0, 8, b'i', b'q', b'n', b'.', b'a', 0, 0, 0]);
    }
}
