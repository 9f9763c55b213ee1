//! Keys as text, and the values of Diffie-Hellman. Whole transactions are in `target/auth/tests.rs`.

use super::*;
use crate::dhchap::testing::{VECTORS, transactions};
use base64ct::{Base64, Encoding};

fn text(transform: &str, secret: &[u8]) -> String {
    let crc = crc32fast::hash(secret).to_le_bytes();
    format!("DHHC-1:{transform}:{}:", Base64::encode_string(&[secret, &crc].concat()))
}

/// J14: a malformed key gives an error that says why and never shows the key.
#[test]
fn keys_as_text() {
    let secret: Vec<u8> = (0..64).collect();
    for (transform, n) in [("00", 32), ("01", 32), ("02", 48), ("03", 64), ("01", 64)] {
        let key = Key::parse(&format!(" {}\n", text(transform, &secret[..n]))).unwrap();
        assert!(key.is_secret_of(&Key::parse(&text("00", &secret[..n])).unwrap()));
        assert_eq!(key.of("nqn.a") == key.of("nqn.b"), transform == "00");
    }
    let good = text("01", &secret[..32]);
    let swapped = good.replace("AAEC", "AAED");
    assert_ne!(swapped, good);
    let bad = [
        ("", "does not begin"),
        ("DHHC-2:00:AAAA:", "does not begin"),
        ("DHHC-1:00", "too short"),
        (&good.replace(":01:", ":04:"), "second part"),
        (&good.replace(":01:", ":1:"), "second part"),
        (good.trim_end_matches(':'), "end with a colon"),
        (&format!("{good}x"), "end with a colon"),
        (&good.replace("AAEC", "AA C"), "base64"),
        (&good.replace("AAEC", "AAE"), "base64"),
        ("DHHC-1:00::", "too short"),
        ("DHHC-1:00:AAAA:", "too short"),
        (&text("00", &secret[..31]), "neither 32, 48 nor 64"),
        (&text("00", &secret[..40]), "neither 32, 48 nor 64"),
        (&text("00", &[]), "neither 32, 48 nor 64"),
        (&swapped, "checksum"),
    ];
    for (bad, why) in bad {
        let e = Key::parse(bad).unwrap_err().to_string();
        assert!(e.contains(why), "{bad:?}: {e}");
        assert!(!e.contains("AAE"), "the error shows the key: {e}");
    }
    let key = Key::parse(&good).unwrap();
    assert_eq!(format!("{key:?} {:?}", Random::new(&[7; 132])), "Key Random");
}

/// J14: two keys with the same secret are recognised.
#[test]
fn secrets_are_compared() {
    let key = |byte| Key::parse(&text("01", &[byte; 32])).unwrap();
    assert!(key(1).is_secret_of(&key(1)));
    assert!(!key(1).is_secret_of(&key(2)));
    assert!(!key(1).is_secret_of(&Key::parse(&text("01", &[1; 48])).unwrap()));
}

/// J14: a public value of the wrong length, or one whose powers are known, is refused.
#[test]
fn values_of_diffie_hellman() {
    for group in DhGroup::ALL.into_iter().skip(1) {
        assert_eq!(DhGroup::from_id(group.id()), Some(group));
        assert_eq!(group.name().parse::<DhGroup>().unwrap(), group);
        let n = group.len();
        let (a, b) = (PrivateValue::new(group, &[3; 64]), PrivateValue::new(group, &[5; 64]));
        assert_eq!((a.public().len(), b.public().len()), (n, n));
        let shared = a.shared(&b.public()).unwrap();
        assert_eq!(b.shared(&a.public()).unwrap(), shared);
        assert_ne!(shared[..], a.public()[..]);
        let mut small = vec![0; n];
        for (value, good) in [(0, false), (1, false), (2, true)] {
            small[n - 1] = value;
            assert_eq!(a.shared(&small).is_some(), good, "{group} {value}");
        }
        // The prime ends with 64 ones. p - 2 is the largest value that is accepted.
        let prime = group.prime();
        let bytes: Vec<u8> = prime.as_bytes().as_chunks::<2>().0.iter().map(hex).collect();
        for (less, good) in [(0, false), (1, false), (2, true)] {
            let mut value = bytes.clone();
            value[n - 1] -= less;
            assert_eq!(a.shared(&value).is_some(), good, "{group} p-{less}");
        }
        assert!(a.shared(&[0xff].repeat(n)).is_none(), "more than p");
        assert!(a.shared(&b.public()[1..]).is_none() && a.shared(&[]).is_none());
    }
    assert_eq!((DhGroup::from_id(6), DhGroup::from_id(0)), (None, Some(DhGroup::Null)));
    let e = "ffdhe1024".parse::<DhGroup>().unwrap_err();
    assert!(e.to_string().contains("no Diffie-Hellman group"), "{e}");
}

fn hex(pair: &[u8; 2]) -> u8 {
    u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()
}

#[test]
fn the_vectors_have_each_hash_each_transform_and_weak_and_strong_groups() {
    let all = transactions();
    for byte in [1, 2, 3] {
        assert!(all.iter().any(|t| t.bytes("challenge")[8] == byte), "hash {byte}");
    }
    for group in [0, 1, 2, 3, 4, 5] {
        assert!(all.iter().any(|t| t.bytes("challenge")[9] == group), "group {group}");
    }
    for transform in ["00", "01", "02", "03"] {
        assert!(VECTORS.contains(&format!("host_key DHHC-1:{transform}:")), "{transform}");
    }
}

/// A sequence number is never 0, which is reserved.
#[test]
fn sequence_numbers() {
    assert_eq!(Random::new(&[0; 132]).seqnum(), 1);
    let mut bytes = [0; 132];
    bytes[129] = 7;
    assert_eq!(Random::new(&bytes).seqnum(), 0x700);
}
