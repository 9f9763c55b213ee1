//! A layer that encrypts what is written and decrypts what is read: AES-XTS, each sector of 512 bytes with its number
//! as the tweak. dm-crypt's `aes-xts-plain64` reads and writes the same.
//!
//! Owns the key and, while writes are in flight, memory for their encrypted data (`queue.rs`). Knows nothing of zones.
//! The tweak depends on the sector number, which is unknown before an append lands, so there is no native append; the
//! disk above emulates it (A12).
//!
//! A sector that was never written, or was written with write-zeroes, is zeroes on the device below, and is read as
//! zeroes. An attacker that reads the device sees which sectors these are. As with any use of XTS, an attacker that
//! writes to the device can put old sectors back, and this is not detected.

mod queue;

use crate::held::HeldKey;
use crate::paths::open_regular;
use aes::cipher::KeyInit;
use aes::{Aes128, Aes256};
use std::fmt;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::task::Waker;
use xts_mode::{Xts128, get_tweak_default};
use zoneplug_core::unit::SECTOR_SIZE;
use zoneplug_core::zone::{Geometry, Limits, Spindles};
use zoneplug_core::{Device, Error, ErrorKind, Queue, Sector};

/// The longest write in sectors. Each write in flight needs memory of its length.
const MAX_TRANSFER_SECTORS: u32 = 2048;
const SECTOR: usize = SECTOR_SIZE as usize;

/// The two keys of XTS.
enum Key {
    Aes128(Box<Xts128<Aes128>>),
    Aes256(Box<Xts128<Aes256>>),
}

impl Key {
    /// A key of 32 bytes (AES-128) or 64 (AES-256).
    fn new(bytes: &[u8]) -> Option<Key> {
        let (a, b) = bytes.split_at(bytes.len() / 2);
        match bytes.len() {
            // XTS needs two different keys.
            32 | 64 if a == b => None,
            32 => {
                let ciphers = (Aes128::new_from_slice(a).ok()?, Aes128::new_from_slice(b).ok()?);
                Some(Key::Aes128(Box::new(Xts128::new(ciphers.0, ciphers.1))))
            }
            64 => {
                let ciphers = (Aes256::new_from_slice(a).ok()?, Aes256::new_from_slice(b).ok()?);
                Some(Key::Aes256(Box::new(Xts128::new(ciphers.0, ciphers.1))))
            }
            _ => None,
        }
    }

    /// The cipher, the length of its sectors, and 64 bits that depend on the key and the salt: the first half of a
    /// CBC-MAC of the salt by the key, with a tweak that no sector has. These bits disclose neither the key nor the
    /// data.
    fn check(&self, salt: &str) -> String {
        let mut block = *b"zoneplug key 1: ";
        for chunk in salt.as_bytes().chunks(block.len()).chain([&[salt.len() as u8][..]]) {
            block.iter_mut().zip(chunk).for_each(|(b, c)| *b ^= c);
            let tweak = get_tweak_default(u128::MAX);
            match self {
                Key::Aes128(k) => k.encrypt_sector(&mut block, tweak),
                Key::Aes256(k) => k.encrypt_sector(&mut block, tweak),
            }
        }
        let cipher = match self {
            Key::Aes128(_) => "aes-128-xts",
            Key::Aes256(_) => "aes-256-xts",
        };
        let check = u128::from_be_bytes(block) >> 64;
        format!("cipher={cipher},sector={SECTOR},check={check:016x}")
    }

    fn encrypt(&self, sectors: &mut [u8], first: Sector) {
        let first = u128::from(first.0);
        match self {
            Key::Aes128(k) => k.encrypt_area(sectors, SECTOR, first, get_tweak_default),
            Key::Aes256(k) => k.encrypt_area(sectors, SECTOR, first, get_tweak_default),
        }
    }

    /// Decrypts sectors, except those of zeroes, which stay zeroes.
    fn decrypt(&self, sectors: &mut [u8], first: Sector) {
        for (i, sector) in sectors.chunks_exact_mut(SECTOR).enumerate() {
            if sector.iter().all(|b| *b == 0) {
                continue;
            }
            let nr = u128::from(first.0) + i as u128;
            match self {
                Key::Aes128(k) => k.decrypt_sector(sector, get_tweak_default(nr)),
                Key::Aes256(k) => k.decrypt_sector(sector, get_tweak_default(nr)),
            }
        }
    }
}

/// Calls `f` with the bytes of a key file, and clears them.
fn with_file<T>(path: &Path, f: impl FnOnce(&[u8]) -> T) -> io::Result<T> {
    let mut key = Vec::with_capacity(65);
    // 65 bytes are enough to see that the file is too long.
    let read = open_regular(path).and_then(|f| f.take(65).read_to_end(&mut key));
    let done = read.map(|_| f(&key));
    key.fill(0);
    std::hint::black_box(&key);
    done
}

/// An encrypting layer over another device.
///
/// ```
/// use zoneplug_core::Device;
/// use zoneplug_host::{CryptDisk, open_device};
/// let plain = open_device("mem,zones=8,zone-size=1M,append=native").unwrap();
/// let key: Vec<u8> = (0..64).collect(); // from a file, or a key manager
/// let disk = CryptDisk::new(plain, &key).unwrap();
/// assert_eq!(disk.limits().zone_append_max_sectors, 0);
/// ```
pub struct CryptDisk {
    inner: Arc<dyn Device>,
    key: Arc<Key>,
    limits: Limits,
}

impl fmt::Debug for CryptDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CryptDisk").field("limits", &self.limits).finish_non_exhaustive()
    }
}

impl CryptDisk {
    /// The layer over `inner` with a key of 32 bytes (AES-128) or 64 bytes (AES-256): both keys of XTS, as dm-crypt
    /// takes them.
    pub fn new(inner: Arc<dyn Device>, key: &[u8]) -> Result<Arc<CryptDisk>, Error> {
        let Some(made) = Key::new(key) else {
            let what = match key.len() {
                32 | 64 => "a key for crypt whose halves are equal".to_owned(),
                n if n > 64 => "a key of more than 64 bytes for crypt".to_owned(),
                n => format!("a key of {n} bytes for crypt"),
            };
            return Err(Error::invalid(what).hint(
                "64 random bytes (AES-256) or 32 (AES-128): head -c 64 /dev/urandom > FILE",
            ));
        };
        Ok(Self::with_key(inner, Arc::new(made)))
    }

    fn with_key(inner: Arc<dyn Device>, key: Arc<Key>) -> Arc<CryptDisk> {
        let mut limits = inner.limits().clone();
        limits.zone_append_max_sectors = 0;
        limits.max_transfer_sectors = limits.transfer_sectors().min(MAX_TRANSFER_SECTORS);
        Arc::new(CryptDisk { inner, key, limits })
    }

    /// The layer with the key in a file, which contains only the bytes of the key.
    pub fn with_key_file(inner: Arc<dyn Device>, path: &Path) -> Result<Arc<CryptDisk>, Error> {
        with_file(path, |key| Self::new(inner, key)).map_err(|e| {
            Error::new(
                ErrorKind::NotFound,
                format!("the key file {} cannot be read: {e}", path.display()),
            )
            .hint("key-file=PATH names a file of 64 or 32 random bytes")
            .source(e)
        })?
    }

    /// Like [`CryptDisk::with_key_file`], but uses the key that this process has read from that path before, if there
    /// is one. Also returns the check value of the key for `salt`, and the key.
    pub(crate) fn open(
        inner: Arc<dyn Device>,
        path: &Path,
        salt: &str,
        known: Option<HeldKey>,
    ) -> Result<(Arc<dyn Device>, String, HeldKey), Error> {
        let disk = match known.and_then(|key| key.downcast::<Key>().ok()) {
            Some(key) => Self::with_key(inner, key),
            None => Self::with_key_file(inner, path)?,
        };
        let (check, key) = (disk.key.check(salt), disk.key.clone());
        Ok((disk, check, key))
    }

    /// The check value for `salt` of the key in a file. `None`: no key is there.
    #[cfg_attr(
        not(any(feature = "iscsi", feature = "nvme-tcp", feature = "ublk")),
        expect(dead_code, reason = "servers compare what they serve")
    )]
    pub(crate) fn key_check(path: &Path, salt: &str) -> Option<String> {
        with_file(path, |key| Some(Key::new(key)?.check(salt))).ok()?
    }

    /// The device below.
    pub fn inner(&self) -> &Arc<dyn Device> {
        &self.inner
    }
}

impl Device for CryptDisk {
    fn geometry(&self) -> &Geometry {
        self.inner.geometry()
    }

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn is_timed(&self) -> bool {
        self.inner.is_timed()
    }

    fn spindles(&self) -> Spindles {
        self.inner.spindles()
    }

    fn open_queue(&self, depth: u16, waker: Waker) -> Result<Box<dyn Queue>, Error> {
        let inner = self.inner.open_queue(depth, waker.clone())?;
        let (key, max) = (Arc::clone(&self.key), self.limits.max_transfer_sectors);
        Ok(Box::new(queue::CryptQueue::new(key, inner, max, depth, waker)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// IEEE 1619-2007, annex B, vectors 2 (AES-128) and 10 (AES-256), first 16 bytes of each.
    #[test]
    fn it_is_xts_as_the_standard_has_it() {
        let mut key = [0x11; 32];
        key[16..].fill(0x22);
        let key = Key::new(&key).unwrap();
        // Vector 2 has a data unit of 32 bytes, number 0x3333333333.
        let Key::Aes128(k) = &key else { panic!("32 bytes are AES-128") };
        let mut unit = [0x44; 32];
        k.encrypt_sector(&mut unit, get_tweak_default(0x33_3333_3333));
        assert_eq!(unit[..8], [0xc4, 0x54, 0x18, 0x5e, 0x6a, 0x16, 0x93, 0x6e]);
        let mut key = Vec::new();
        key.extend([0x27, 0x18, 0x28, 0x18, 0x28, 0x45, 0x90, 0x45, 0x23, 0x53, 0x60, 0x28]);
        key.extend([0x74, 0x71, 0x35, 0x26, 0x62, 0x49, 0x77, 0x57, 0x24, 0x70, 0x93, 0x69]);
        key.extend([0x99, 0x59, 0x57, 0x49, 0x66, 0x96, 0x76, 0x27, 0x31, 0x41, 0x59, 0x26]);
        key.extend([0x53, 0x58, 0x97, 0x93, 0x23, 0x84, 0x62, 0x64, 0x33, 0x83, 0x27, 0x95]);
        key.extend([0x02, 0x88, 0x41, 0x97, 0x16, 0x93, 0x99, 0x37, 0x51, 0x05, 0x82, 0x09]);
        key.extend([0x74, 0x94, 0x45, 0x92]);
        let key = Key::new(&key).unwrap();
        let mut sector: Vec<u8> = (0..512).map(|i| i as u8).collect();
        key.encrypt(&mut sector, Sector(0xff));
        assert_eq!(sector[..8], [0x1c, 0x3b, 0x3a, 0x10, 0x2f, 0x77, 0x03, 0x86]);
        key.decrypt(&mut sector, Sector(0xff));
        assert!(sector.iter().enumerate().all(|(i, b)| *b == i as u8));
    }

    #[test]
    fn only_keys_are_keys() {
        for n in [0, 1, 16, 31, 33, 48, 63, 65] {
            assert!(Key::new(&vec![1; n]).is_none());
        }
        assert!(Key::new(&[7; 64]).is_none(), "equal halves");
    }
}
