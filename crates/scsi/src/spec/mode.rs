//! Mode pages, and the parameter data around them (SPC-6, SBC-4).

use super::bytes::put;

/// Numbers of mode pages.
pub mod page {
    /// Caching.
    pub const CACHING: u8 = 0x08;
    /// Control.
    pub const CONTROL: u8 = 0x0a;
    /// All pages.
    pub const ALL: u8 = 0x3f;
}

/// The field PAGE CONTROL of MODE SENSE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageControl {
    /// The values in effect.
    Current = 0,
    /// A bit for each bit that can be changed. There is none.
    Changeable = 1,
    /// The values after power on.
    Default = 2,
    /// The values that were saved.
    Saved = 3,
}

impl PageControl {
    /// Reads the field, two bits.
    pub const fn from_bits(bits: u8) -> PageControl {
        match bits & 3 {
            0 => PageControl::Current,
            1 => PageControl::Changeable,
            2 => PageControl::Default,
            _ => PageControl::Saved,
        }
    }
}

/// The state of a unit that the mode pages show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModeState {
    /// WCE: the unit has a volatile cache.
    pub write_cache: bool,
    /// WP: the unit takes no writes.
    pub write_protected: bool,
    /// Blocks of the unit.
    pub blocks: u64,
    /// Bytes of a block.
    pub block_len: u32,
}

/// The form of the parameter data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModeForm {
    /// The header of MODE SENSE(10), not of MODE SENSE(6).
    pub ten: bool,
    /// Without a block descriptor (DBD).
    pub without_descriptor: bool,
    /// A long block descriptor is accepted (LLBAA).
    pub long: bool,
}

impl ModeState {
    fn caching(&self) -> [u8; 20] {
        let mut b = [0; 20];
        (b[0], b[1]) = (page::CACHING, 18);
        b[2] = if self.write_cache { 0x04 } else { 0 };
        b
    }

    fn control() -> [u8; 12] {
        let mut b = [0; 12];
        (b[0], b[1]) = (page::CONTROL, 10);
        // GLTSD: no log parameters are saved.
        b[2] = 0x02;
        // QUEUE ALGORITHM MODIFIER: the unit may reorder commands.
        b[3] = 0x10;
        // BUSY TIMEOUT PERIOD: not limited.
        put(&mut b, 8, &u16::MAX.to_be_bytes());
        b
    }

    /// Encodes the pages with this number. `None`: there is no such page.
    pub fn pages(&self, number: u8, control: PageControl) -> Option<Vec<u8>> {
        let fixed = |mut b: Vec<u8>| {
            if control == PageControl::Changeable {
                b[2..].fill(0);
            }
            b
        };
        let (caching, own) = (fixed(self.caching().to_vec()), fixed(ModeState::control().to_vec()));
        match number {
            page::CACHING => Some(caching),
            page::CONTROL => Some(own),
            page::ALL => Some([caching, own].concat()),
            _ => None,
        }
    }

    /// Puts the header and the block descriptor before `pages`.
    pub fn encode(&self, form: ModeForm, pages: &[u8]) -> Vec<u8> {
        let long = form.ten && form.long;
        let mut descriptor = Vec::new();
        if !form.without_descriptor {
            if long {
                descriptor.extend(self.blocks.to_be_bytes());
                descriptor.extend([0; 4]);
            } else {
                let blocks = u32::try_from(self.blocks).unwrap_or(u32::MAX);
                descriptor.extend(blocks.to_be_bytes());
            }
            descriptor.extend(self.block_len.to_be_bytes());
        }
        // WP; and DPOFUA: the unit accepts the bits DPO and FUA.
        let specific = if self.write_protected { 0x80 } else { 0 } | 0x10;
        let rest_len = descriptor.len() + pages.len();
        let header = if form.ten {
            let mut h = vec![0; 8];
            put(&mut h, 0, &((6 + rest_len) as u16).to_be_bytes());
            h[3] = specific;
            h[4] = u8::from(long && !descriptor.is_empty());
            put(&mut h, 6, &(descriptor.len() as u16).to_be_bytes());
            h
        } else {
            vec![(3 + rest_len) as u8, 0, specific, descriptor.len() as u8]
        };
        [&header[..], &descriptor, pages].concat()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const STATE: ModeState =
        ModeState { write_cache: true, write_protected: false, blocks: 1 << 33, block_len: 4096 };

    #[test]
    fn pages_have_their_fields_where_the_tables_have_them() {
        let caching = STATE.pages(page::CACHING, PageControl::Current).unwrap();
        assert_eq!((caching.len(), &caching[..3]), (20, &[8, 18, 4][..]));
        let control = STATE.pages(page::CONTROL, PageControl::Default).unwrap();
        assert_eq!(control, [10, 10, 2, 0x10, 0, 0, 0, 0, 0xff, 0xff, 0, 0]);
        let all = STATE.pages(page::ALL, PageControl::Changeable).unwrap();
        assert_eq!((all.len(), all[20], all[21], &all[22..]), (32, 10, 10, &[0; 10][..]));
        assert_eq!(STATE.pages(0x1c, PageControl::Current), None);
    }

    #[test]
    fn headers_count_what_follows_them() {
        let six = ModeForm { ten: false, without_descriptor: false, long: false };
        let b = STATE.encode(six, &[1, 2]);
        assert_eq!(b, [13, 0, 0x10, 8, 0xff, 0xff, 0xff, 0xff, 0, 0, 0x10, 0, 1, 2]);
        let ten = ModeForm { ten: true, without_descriptor: true, long: true };
        assert_eq!(STATE.encode(ten, &[1]), [0, 7, 0, 0x10, 0, 0, 0, 0, 1]);
        let long = STATE.encode(ModeForm { without_descriptor: false, ..ten }, &[]);
        let want = [0, 22, 0, 0x10, 1, 0, 0, 16, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10, 0];
        assert_eq!(long, want);
    }
}
