//! The structures of Identify (Base Specification, *Identify command*; NVM Command Set Specification; Zoned Namespace
//! Command Set Specification). Fields have the specifications' names. Only the fields that zoneplug uses are listed.

use super::structure::structure;

/// Bytes of every structure of Identify.
pub const IDENTIFY_LEN: usize = 4096;

/// Which structure: bits 7:0 of command dword 10.
pub mod cns {
    /// A namespace, in the form of the NVM Command Set.
    pub const NAMESPACE: u8 = 0x00;
    /// The controller.
    pub const CONTROLLER: u8 = 0x01;
    /// The active namespaces with a number above that of the command.
    pub const ACTIVE_NAMESPACES: u8 = 0x02;
    /// The descriptors that identify a namespace.
    pub const NAMESPACE_DESCRIPTORS: u8 = 0x03;
    /// A namespace, as its command set describes it.
    pub const COMMAND_SET_NAMESPACE: u8 = 0x05;
    /// The controller, as a command set describes it.
    pub const COMMAND_SET_CONTROLLER: u8 = 0x06;
    /// The active namespaces of a command set.
    pub const COMMAND_SET_ACTIVE_NAMESPACES: u8 = 0x07;
    /// A namespace, whatever its command set.
    pub const INDEPENDENT_NAMESPACE: u8 = 0x08;
    /// The endurance groups from that of command dword 11 on.
    pub const ENDURANCE_GROUPS: u8 = 0x19;
    /// The combinations of command sets that a controller supports.
    pub const COMMAND_SETS: u8 = 0x1c;
}

/// Command set indicators: bits 31:24 of command dword 11.
pub mod csi {
    /// NVM Command Set.
    pub const NVM: u8 = 0;
    /// Zoned Namespace Command Set.
    pub const ZONED: u8 = 2;
}

/// No limit of active or open zones (MAR, MOR).
pub const NO_LIMIT: u32 = u32::MAX;

structure! {
    /// Identify Controller (CNS 01h).
    IdentifyController: 4096 {
        /// Serial number, ASCII, spaces behind it.
        sn: [u8; 20] = 4,
        /// Model, ASCII, spaces behind it.
        mn: [u8; 40] = 24,
        /// Firmware revision, ASCII, spaces behind it.
        fr: [u8; 8] = 64,
        /// Controller multi-path I/O and namespace sharing: 1 several ports, 2 several controllers, 8 ANA.
        cmic: u8 = 76,
        /// log2 of the longest transfer in pages of CAP.MPSMIN; 0: no limit.
        mdts: u8 = 77,
        /// The controller's number.
        cntlid: u16 = 78,
        /// The specification's version, as the property VS.
        ver: u32 = 80,
        /// Optional asynchronous events: bits as in the feature Asynchronous Event Configuration.
        oaes: u32 = 92,
        /// Attributes. Bit 0: host identifiers of 128 bits; bit 4: endurance groups.
        ctratt: u32 = 96,
        /// 1 I/O controller, 2 discovery controller.
        cntrltype: u8 = 111,
        /// Abort commands at a time, less one.
        acl: u8 = 258,
        /// Asynchronous event requests at a time, less one.
        aerl: u8 = 259,
        /// Firmware updates: bit 0 the first slot is read-only, 3:1 slots.
        frmw: u8 = 260,
        /// Attributes of log pages: 2 effects log, 4 extended data, `20h` supported log pages and features.
        lpa: u8 = 261,
        /// Entries of the error log, less one.
        elpe: u8 = 262,
        /// Power states, less one.
        npss: u8 = 263,
        /// Warning temperature in kelvin.
        wctemp: u16 = 266,
        /// Critical temperature in kelvin.
        cctemp: u16 = 268,
        /// Keep alive granularity in units of 100 ms.
        kas: u16 = 320,
        /// Highest endurance group.
        endgidmax: u16 = 340,
        /// ANA transition time in seconds.
        anatt: u8 = 342,
        /// ANA capabilities.
        anacap: u8 = 343,
        /// Highest ANA group.
        anagrpmax: u32 = 344,
        /// Number of ANA groups.
        nanagrpid: u32 = 348,
        /// Bits 3:0 log2 of the smallest submission queue entry, 7:4 of the largest.
        sqes: u8 = 512,
        /// log2 of completion queue entries: bits 3:0 the smallest, 7:4 the largest.
        cqes: u8 = 513,
        /// Most commands of a queue at a time.
        maxcmd: u16 = 514,
        /// The highest number of a namespace.
        nn: u32 = 516,
        /// Optional commands: 4 Dataset Management, 8 Write Zeroes.
        oncs: u16 = 520,
        /// Volatile write cache: bit 0 there is one; 2:1 whether a flush takes all namespaces (2 no, 3 yes).
        vwc: u8 = 525,
        /// Blocks that are written atomically, less one.
        awun: u16 = 526,
        /// Blocks that are written atomically when power fails, less one.
        awupf: u16 = 528,
        /// SGLs.
        sgls: u32 = 536,
        /// Most namespaces at a time.
        mnan: u32 = 540,
        /// The subsystem's NQN, UTF-8, zeroes behind it.
        subnqn: [u8; 256] = 768,
        /// Longest command capsule of an I/O queue, in 16 bytes.
        ioccsz: u32 = 1792,
        /// Longest response capsule of an I/O queue, in 16 bytes.
        iorcsz: u32 = 1796,
        /// Where data begins in a capsule, in 16 bytes behind the command.
        icdoff: u16 = 1800,
        /// Attributes of a fabrics controller. Bit 0: 0 means the dynamic controller model, in which a host cannot
        /// choose its controller.
        fcatt: u8 = 1802,
        /// Most SGL data blocks of a command.
        msdbd: u8 = 1803,
        /// Optional fabrics commands. Bit 0: Disconnect.
        ofcs: u16 = 1804,
        /// Type of a discovery controller: 0 not told, 1 direct, 2 central.
        dctype: u8 = 1806,
    }
}

structure! {
    /// A format of logical blocks.
    LbaFormat: 4 {
        /// Bytes of metadata.
        ms: u16 = 0,
        /// log2 of the bytes of a block.
        lbads: u8 = 2,
        /// Relative performance.
        rp: u8 = 3,
    }
}

structure! {
    /// Identify Namespace (CNS 00h).
    IdentifyNamespace: 4096 {
        /// Size in blocks.
        nsze: u64 = 0,
        /// Capacity in blocks.
        ncap: u64 = 8,
        /// Blocks in use.
        nuse: u64 = 16,
        /// Features.
        nsfeat: u8 = 24,
        /// Formats, less one.
        nlbaf: u8 = 25,
        /// The format in use: see [`IdentifyNamespace::format`].
        flbas: u8 = 26,
        /// Sharing: bit 0 several controllers.
        nmic: u8 = 30,
        /// Deallocated blocks: bits 2:0 give the value that they read as (1 zeroes).
        dlfeat: u8 = 33,
        /// The ANA group.
        anagrpid: u32 = 92,
        /// Attributes. Bit 0: write protected.
        nsattr: u8 = 99,
        /// The endurance group.
        endgid: u16 = 102,
        /// Globally unique identifier.
        nguid: [u8; 16] = 104,
        /// IEEE extended unique identifier.
        eui64: [u8; 8] = 120,
        /// The formats.
        lbaf: [LbaFormat; 64] = 128,
    }
}

impl IdentifyNamespace {
    /// Returns the number of the format in use: bits 3:0 of FLBAS, and 6:5 above them where there are more than 16
    /// formats.
    pub const fn format(&self) -> usize {
        let high = if self.nlbaf > 15 { (self.flbas >> 5 & 3) << 4 } else { 0 };
        (self.flbas & 15 | high) as usize
    }
}

structure! {
    /// I/O Command Set Independent Identify Namespace (CNS 08h).
    IdentifyNamespaceIndependent: 4096 {
        /// Features. Bit 4: the medium turns; bit 5: no volatile write cache, whatever the controller says.
        nsfeat: u8 = 0,
        /// Sharing.
        nmic: u8 = 1,
        /// The ANA group.
        anagrpid: u32 = 4,
        /// Attributes. Bit 0: write protected.
        nsattr: u8 = 8,
        /// The endurance group.
        endgid: u16 = 12,
        /// Status. Bit 0: ready.
        nstat: u8 = 14,
    }
}

structure! {
    /// A format of a zoned namespace.
    ZonedLbaFormat: 16 {
        /// Blocks of a zone.
        zsze: u64 = 0,
        /// Zone descriptor extension, in 64 bytes.
        zdes: u8 = 8,
    }
}

structure! {
    /// Identify Namespace of the Zoned Namespace Command Set (CNS 05h, CSI 2).
    IdentifyNamespaceZoned: 4096 {
        /// Zone operation characteristics: 1 the capacity of a zone may change, 2 zones change by themselves.
        zoc: u16 = 0,
        /// Optional characteristics. Bit 0: reads across zones.
        ozcs: u16 = 2,
        /// Most active zones, less one; [`NO_LIMIT`].
        mar: u32 = 4,
        /// Most open zones, less one; [`NO_LIMIT`].
        mor: u32 = 8,
        /// The zone size of each format.
        lbafe: [ZonedLbaFormat; 64] = 2816,
    }
}

structure! {
    /// Identify Controller of the NVM Command Set (CNS 06h, CSI 0).
    IdentifyControllerNvm: 4096 {
        /// log2 of the longest Verify in pages; 0: no limit is told.
        vsl: u8 = 0,
        /// log2 of the longest Write Zeroes in pages; 0: no limit is told.
        wzsl: u8 = 1,
        /// log2 of the longest Write Uncorrectable in pages; 0: no limit is told.
        wusl: u8 = 2,
        /// Ranges of a Dataset Management command; 0: no limit is told.
        dmrl: u8 = 3,
        /// Blocks of a range of a Dataset Management command; 0: no limit is told.
        dmrsl: u32 = 4,
        /// Blocks of all ranges of a Dataset Management command; 0: no limit is told.
        dmsl: u64 = 8,
    }
}

structure! {
    /// Identify Controller of the Zoned Namespace Command Set (CNS 06h, CSI 2).
    IdentifyControllerZoned: 4096 {
        /// log2 of the longest append in pages; 0: as MDTS.
        zasl: u8 = 0,
    }
}

/// An identifier of a namespace in the list of descriptors (CNS 03h).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NamespaceId {
    /// IEEE extended unique identifier.
    Eui64([u8; 8]),
    /// Globally unique identifier.
    Nguid([u8; 16]),
    /// A UUID (RFC 4122), its first byte first.
    Uuid([u8; 16]),
    /// The command set.
    Csi(u8),
}

/// Encodes the list of descriptors of a namespace (CNS 03h).
///
/// # Panics
///
/// If they are longer than a structure of Identify.
pub fn encode_namespace_ids(ids: &[NamespaceId]) -> [u8; IDENTIFY_LEN] {
    let (mut list, mut at) = ([0; IDENTIFY_LEN], 0);
    for id in ids {
        let csi;
        let (kind, bytes): (u8, &[u8]) = match id {
            NamespaceId::Eui64(b) => (1, b),
            NamespaceId::Nguid(b) => (2, b),
            NamespaceId::Uuid(b) => (3, b),
            NamespaceId::Csi(n) => {
                csi = [*n];
                (4, &csi)
            }
        };
        (list[at], list[at + 1]) = (kind, bytes.len() as u8);
        list[at + 4..at + 4 + bytes.len()].copy_from_slice(bytes);
        at += 4 + bytes.len();
    }
    list
}

/// Decodes a list of descriptors. Descriptors of other types are skipped; a malformed one ends the list.
pub fn decode_namespace_ids(mut list: &[u8]) -> Vec<NamespaceId> {
    let mut ids = Vec::new();
    while let [kind @ 1..=255, len, _, _, rest @ ..] = list {
        let Some((bytes, behind)) = rest.split_at_checked(usize::from(*len)) else { break };
        ids.extend(match (kind, bytes.len()) {
            (1, 8) => bytes.try_into().ok().map(NamespaceId::Eui64),
            (2, 16) => bytes.try_into().ok().map(NamespaceId::Nguid),
            (3, 16) => bytes.try_into().ok().map(NamespaceId::Uuid),
            (4, 1) => Some(NamespaceId::Csi(bytes[0])),
            _ => None,
        });
        list = behind;
    }
    ids
}

/// Encodes a list of namespaces (CNS 02h and 07h, and the log of changed namespaces): the first 1024, in the order of
/// `numbers`.
pub fn encode_namespace_list(numbers: impl IntoIterator<Item = u32>) -> [u8; IDENTIFY_LEN] {
    let mut list = [0; IDENTIFY_LEN];
    for (place, nsid) in list.chunks_exact_mut(4).zip(numbers) {
        place.copy_from_slice(&nsid.to_le_bytes());
    }
    list
}

/// Decodes a list of namespaces: the numbers up to the first 0.
pub fn decode_namespace_list(list: &[u8]) -> Vec<u32> {
    let number = |b: &[u8]| b.iter().rev().fold(0, |n, b| n << 8 | u32::from(*b));
    list.chunks_exact(4).map(number).take_while(|n| *n != 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::text;

    #[test]
    fn a_controller_has_its_fields_where_the_figure_has_them() {
        let c = IdentifyController {
            sn: text("S", b' '),
            mdts: 8,
            cntlid: 0x0102,
            oaes: 0x100,
            cntrltype: 1,
            aerl: 3,
            kas: 10,
            sqes: 0x66,
            nn: 0x0304,
            oncs: 8,
            vwc: 5,
            sgls: 1 << 20,
            subnqn: text("nqn", 0),
            ioccsz: 0x0506,
            ..Default::default()
        };
        let b = c.encode();
        assert_eq!((&b[4..6], b[23], b[77], &b[78..80]), (&b"S "[..], b' ', 8, &[2, 1][..]));
        assert_eq!((b[93], b[111], b[259], b[320], b[512]), (1, 1, 3, 10, 0x66));
        assert_eq!((&b[516..518], b[520], b[525], b[538]), (&[4, 3][..], 8, 5, 0x10));
        assert_eq!((&b[768..772], &b[1792..1794]), (&b"nqn\0"[..], &[6, 5][..]));
        assert_eq!(IdentifyController::decode(&b), c);
    }

    #[test]
    fn the_number_of_a_format_may_have_six_bits() {
        let n = |nlbaf, flbas| IdentifyNamespace { nlbaf, flbas, ..Default::default() }.format();
        assert_eq!((n(15, 0x64), n(16, 0x64), n(16, 0x24)), (4, 0x34, 0x14));
    }

    #[test]
    fn lists_of_namespaces() {
        let list = encode_namespace_list([3, 0x0102_0304]);
        assert_eq!(list[..12], [3, 0, 0, 0, 4, 3, 2, 1, 0, 0, 0, 0]);
        assert_eq!(decode_namespace_list(&list), [3, 0x0102_0304]);
        let full = encode_namespace_list(1..=2000);
        assert_eq!(decode_namespace_list(&full).len(), 1024);
    }

    #[test]
    fn identifiers_of_a_namespace() {
        let ids = [
            NamespaceId::Uuid(std::array::from_fn(|i| i as u8)),
            NamespaceId::Eui64([7; 8]),
            NamespaceId::Csi(csi::ZONED),
        ];
        let mut list = encode_namespace_ids(&ids);
        assert_eq!(list[..6], [3, 16, 0, 0, 0, 1]);
        assert_eq!((&list[20..25], &list[32..38]), (&[1, 8, 0, 0, 7][..], &[4, 1, 0, 0, 2, 0][..]));
        assert_eq!(decode_namespace_ids(&list), ids);
        // An unknown type is skipped; a length past the end ends the list.
        list[0] = 9;
        assert_eq!(decode_namespace_ids(&list), ids[1..]);
        list[33] = 255;
        assert_eq!(decode_namespace_ids(&list[..40]), ids[1..2]);
    }
}
