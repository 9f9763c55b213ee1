//! The operational keys (RFC 7143, section 13): the values that each may have, and what two sides agree on.

/// The values that a target offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offer {
    /// Headers and data may have digests, if the initiator wants them.
    pub digests: bool,
    /// Data may come with their command.
    pub immediate_data: bool,
    /// Data may come behind their command without being asked for.
    pub unsolicited_data: bool,
    /// Most bytes of data in a PDU to this side.
    pub max_data: u32,
    /// Most bytes of a sequence of data.
    pub max_burst: u32,
    /// Most bytes of data that are not asked for.
    pub first_burst: u32,
    /// Most R2T of a command without their data.
    pub max_outstanding_r2t: u32,
}

/// The values on which both sides have agreed: at first the defaults of the standard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Negotiation {
    /// Headers have digests.
    pub header_digest: bool,
    /// Data have digests.
    pub data_digest: bool,
    /// InitialR2T: data behind a command are asked for.
    pub initial_r2t: bool,
    /// Data may come with their command.
    pub immediate_data: bool,
    /// Most bytes of data in a PDU to the initiator.
    pub max_send_data: u32,
    /// Most bytes of a sequence of data.
    pub max_burst: u32,
    /// Most bytes of data that are not asked for.
    pub first_burst: u32,
    /// Most R2T of a command without their data.
    pub max_outstanding_r2t: u32,
    /// Whether this side has declared the longest data that it takes.
    declared: bool,
}

impl Default for Negotiation {
    fn default() -> Negotiation {
        Negotiation {
            header_digest: false,
            data_digest: false,
            initial_r2t: true,
            immediate_data: true,
            max_send_data: 8192,
            max_burst: 262_144,
            first_burst: 65_536,
            max_outstanding_r2t: 1,
            declared: false,
        }
    }
}

/// A value that a key cannot have. The login fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused;

/// Reads a number of the standard, decimal or hexadecimal, in a range.
fn number(value: &str, min: u32, max: u32) -> Result<u32, Refused> {
    let hex = value.strip_prefix("0x").or_else(|| value.strip_prefix("0X"));
    let digits = hex.unwrap_or(value);
    // `from_str_radix` would take a sign too.
    if !digits.starts_with(|c: char| c.is_ascii_hexdigit()) {
        return Err(Refused);
    }
    let n =
        u32::from_str_radix(digits, if hex.is_some() { 16 } else { 10 }).map_err(|_| Refused)?;
    if (min..=max).contains(&n) { Ok(n) } else { Err(Refused) }
}

fn flag(value: &str) -> Result<bool, Refused> {
    match value {
        "Yes" => Ok(true),
        "No" => Ok(false),
        _ => Err(Refused),
    }
}

fn yes(flag: bool) -> String {
    if flag { "Yes" } else { "No" }.to_owned()
}

const MAX_DATA: u32 = (1 << 24) - 1;

impl Negotiation {
    /// Takes a key of the initiator, and returns the answer. `None`: the key is a declaration, which needs none.
    /// A key that is not in the table is answered with `NotUnderstood`.
    pub fn take(
        &mut self,
        key: &str,
        value: &str,
        offer: &Offer,
    ) -> Result<Option<String>, Refused> {
        // The smaller of two numbers.
        let least = |to: &mut u32, min: u32, max: u32, own: u32| {
            *to = number(value, min, max)?.min(own);
            Ok(Some(to.to_string()))
        };
        match key {
            "HeaderDigest" => digest(value, offer.digests, &mut self.header_digest),
            "DataDigest" => digest(value, offer.digests, &mut self.data_digest),
            // OR: one side is enough to have data asked for.
            "InitialR2T" => {
                self.initial_r2t = flag(value)? | !offer.unsolicited_data;
                Ok(Some(yes(self.initial_r2t)))
            }
            // AND: both sides must want it.
            "ImmediateData" => {
                self.immediate_data = flag(value)? & offer.immediate_data;
                Ok(Some(yes(self.immediate_data)))
            }
            "MaxRecvDataSegmentLength" => {
                self.max_send_data = number(value, 512, MAX_DATA)?;
                Ok(None)
            }
            "MaxBurstLength" => {
                let answer = least(&mut self.max_burst, 512, MAX_DATA, offer.max_burst);
                self.first_burst = self.first_burst.min(self.max_burst);
                answer
            }
            "FirstBurstLength" => {
                least(&mut self.first_burst, 512, MAX_DATA, offer.first_burst.min(self.max_burst))
            }
            "MaxOutstandingR2T" => {
                least(&mut self.max_outstanding_r2t, 1, 65_535, offer.max_outstanding_r2t)
            }
            // One connection, no recovery within it.
            "MaxConnections" => number(value, 1, 65_535).map(|_| Some("1".to_owned())),
            "ErrorRecoveryLevel" => number(value, 0, 2).map(|_| Some("0".to_owned())),
            // The larger and the smaller of two times in seconds.
            "DefaultTime2Wait" => number(value, 0, 3600).map(|n| Some(n.max(2).to_string())),
            "DefaultTime2Retain" => number(value, 0, 3600).map(|_| Some("0".to_owned())),
            // OR: one side is enough to have data in their order, and this side wants it.
            "DataPDUInOrder" | "DataSequenceInOrder" => flag(value).map(|_| Some(yes(true))),
            // Markers are obsolete.
            "IFMarker" | "OFMarker" => flag(value).map(|_| Some(yes(false))),
            "IFMarkInt" | "OFMarkInt" => Ok(Some("Reject".to_owned())),
            _ => Ok(Some("NotUnderstood".to_owned())),
        }
    }

    /// Returns the declaration of the longest data that this side takes, once.
    pub fn declare(&mut self, offer: &Offer) -> Option<(&'static str, String)> {
        let first = !std::mem::replace(&mut self.declared, true);
        first.then(|| ("MaxRecvDataSegmentLength", offer.max_data.to_string()))
    }
}

/// Chooses from a list of digests the first one that this side has.
fn digest(value: &str, offered: bool, to: &mut bool) -> Result<Option<String>, Refused> {
    let known = |v: &&str| *v == "None" || *v == "CRC32C" && offered;
    let chosen = value.split(',').find(known);
    *to = chosen == Some("CRC32C");
    Ok(Some(chosen.unwrap_or("Reject").to_owned()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const OFFER: Offer = Offer {
        digests: true,
        immediate_data: true,
        unsolicited_data: true,
        max_data: 262_144,
        max_burst: 1 << 20,
        first_burst: 131_072,
        max_outstanding_r2t: 4,
    };

    #[test]
    fn each_key_has_its_rule() {
        let mut n = Negotiation::default();
        let mut take = |key, value| n.take(key, value, &OFFER).map(|a| a.unwrap_or_default());
        for (key, value, answer) in [
            ("HeaderDigest", "CRC32C,None", "CRC32C"),
            ("DataDigest", "X-a,None,CRC32C", "None"),
            ("InitialR2T", "No", "No"),
            ("ImmediateData", "Yes", "Yes"),
            ("MaxRecvDataSegmentLength", "0x10000", ""),
            ("MaxBurstLength", "16776192", "1048576"),
            ("FirstBurstLength", "262144", "131072"),
            ("MaxOutstandingR2T", "1", "1"),
            ("MaxConnections", "8", "1"),
            ("ErrorRecoveryLevel", "2", "0"),
            ("DefaultTime2Wait", "0", "2"),
            ("DefaultTime2Retain", "20", "0"),
            ("DataPDUInOrder", "No", "Yes"),
            ("IFMarker", "Yes", "No"),
            ("X-com.example.key", "1", "NotUnderstood"),
        ] {
            assert_eq!(take(key, value).unwrap(), answer, "{key}");
        }
        for (key, value) in [
            ("InitialR2T", "yes"),
            ("MaxBurstLength", "511"),
            ("MaxBurstLength", "16777216"),
            ("MaxBurstLength", "+1024"),
            ("MaxOutstandingR2T", "0"),
        ] {
            assert_eq!(take(key, value), Err(Refused), "{key}={value}");
        }
        assert!(n.header_digest && !n.data_digest && !n.initial_r2t && n.immediate_data);
        assert_eq!(n.max_send_data, 65_536);
        assert_eq!(n.declare(&OFFER), Some(("MaxRecvDataSegmentLength", "262144".to_owned())));
        assert_eq!(n.declare(&OFFER), None);
        let wary = Offer { unsolicited_data: false, digests: false, ..OFFER };
        assert_eq!(n.take("InitialR2T", "No", &wary), Ok(Some("Yes".to_owned())));
        assert_eq!(n.take("HeaderDigest", "CRC32C", &wary), Ok(Some("Reject".to_owned())));
    }

    proptest! {
        /// Whatever the initiator proposes, no agreement exceeds what either side takes.
        #[test]
        fn agreements_are_within_both_limits(burst in 512u32..=MAX_DATA, first in 512u32..=MAX_DATA, swapped in any::<bool>()) {
            let mut n = Negotiation::default();
            let (b, f) = (burst.to_string(), first.to_string());
            let mut keys = [("MaxBurstLength", &b), ("FirstBurstLength", &f)];
            if swapped {
                keys.reverse();
            }
            for (key, value) in keys {
                n.take(key, value, &OFFER).unwrap();
            }
            prop_assert!(n.max_burst == burst.min(OFFER.max_burst));
            prop_assert!(n.first_burst <= n.max_burst && n.first_burst <= first.min(OFFER.first_burst));
        }
    }
}
