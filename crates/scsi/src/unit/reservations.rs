//! Persistent reservations (SPC-6, *Persistent reservations*): initiators register with a key, and one of them, or all,
//! reserve the unit. Nothing is kept across a restart of the unit (APTPL is refused).

use super::nexus::{Nexus, TransportId};
use crate::command::{ReserveIn, ReserveOut};
use crate::spec::bytes::be64;
use crate::spec::operation::Access;
use crate::spec::sense::{
    INVALID_RELEASE, NO_REGISTRATIONS, PARAMETER_LENGTH, REGISTRATIONS_PREEMPTED,
    RESERVATIONS_PREEMPTED, RESERVATIONS_RELEASED, SenseData,
};
use std::collections::BTreeMap;
use zoneplug_core::Sense;

/// The length of the parameter list of PERSISTENT RESERVE OUT.
const LIST_LEN: usize = 24;
/// Most initiators that are registered.
const MAX_REGISTRATIONS: usize = 256;

/// The type of a reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    WriteExclusive = 1,
    ExclusiveAccess = 3,
    WriteExclusiveRegistrants = 5,
    ExclusiveAccessRegistrants = 6,
    WriteExclusiveAll = 7,
    ExclusiveAccessAll = 8,
}

impl Kind {
    fn from_bits(bits: u8) -> Option<Kind> {
        use Kind as K;
        [
            K::WriteExclusive,
            K::ExclusiveAccess,
            K::WriteExclusiveRegistrants,
            K::ExclusiveAccessRegistrants,
            K::WriteExclusiveAll,
            K::ExclusiveAccessAll,
        ]
        .into_iter()
        .find(|k| *k as u8 == bits)
    }

    /// Whether all registered initiators hold the reservation.
    fn is_of_all(self) -> bool {
        matches!(self, Kind::WriteExclusiveAll | Kind::ExclusiveAccessAll)
    }

    /// Whether only the holder may do what the reservation is about.
    fn is_of_holder(self) -> bool {
        matches!(self, Kind::WriteExclusive | Kind::ExclusiveAccess)
    }

    fn lets_all_read(self) -> bool {
        matches!(
            self,
            Kind::WriteExclusive | Kind::WriteExclusiveRegistrants | Kind::WriteExclusiveAll
        )
    }
}

/// The reservation of a unit. `holder` has no meaning if all registered initiators hold it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Reservation {
    kind: Kind,
    holder: Nexus,
}

/// Why a command is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// RESERVATION CONFLICT.
    Conflict,
    /// CHECK CONDITION with this sense.
    Check(SenseData),
}

impl From<SenseData> for Refusal {
    fn from(sense: SenseData) -> Refusal {
        Refusal::Check(sense)
    }
}

/// Attentions for other initiators.
pub(super) type Attentions = Vec<(Nexus, Sense)>;

/// The registration of an initiator.
#[derive(Debug)]
struct Registration {
    key: u64,
    transport_id: TransportId,
}

/// The registrations and the reservation of a unit.
#[derive(Debug, Default)]
pub(super) struct Reservations {
    /// PRGENERATION.
    generation: u32,
    registered: BTreeMap<Nexus, Registration>,
    reservation: Option<Reservation>,
}

impl Reservations {
    fn holds(&self, r: Reservation, nexus: Nexus) -> bool {
        if r.kind.is_of_all() { self.registered.contains_key(&nexus) } else { r.holder == nexus }
    }

    /// Returns whether the reservation lets an initiator do this.
    pub(super) fn allows(&self, nexus: Nexus, access: Access) -> bool {
        let Some(r) = self.reservation else { return true };
        let registered = self.registered.contains_key(&nexus);
        match access {
            Access::Free => true,
            _ if self.holds(r, nexus) || registered && !r.kind.is_of_holder() => true,
            Access::Read => r.kind.lets_all_read(),
            Access::Write => false,
        }
    }

    /// Returns the data of PERSISTENT RESERVE IN.
    pub(super) fn read(&self, action: ReserveIn) -> Vec<u8> {
        let mut list = Vec::new();
        match action {
            ReserveIn::Keys => {
                self.registered.values().for_each(|r| list.extend(r.key.to_be_bytes()));
            }
            ReserveIn::Reservation => {
                if let Some(r) = self.reservation {
                    // A reservation of all has no key.
                    let key = if r.kind.is_of_all() { 0 } else { self.key(r.holder).unwrap_or(0) };
                    list.extend(key.to_be_bytes());
                    list.extend([0, 0, 0, 0, 0, r.kind as u8, 0, 0]);
                }
            }
            ReserveIn::FullStatus => {
                for (nexus, Registration { key, transport_id: id }) in &self.registered {
                    let held = self.reservation.filter(|r| self.holds(*r, *nexus));
                    list.extend(key.to_be_bytes());
                    // R_HOLDER, the type, and the only port of the target.
                    let (holder, kind) = held.map_or((0, 0), |r| (1, r.kind as u8));
                    list.extend([0, 0, 0, 0, holder, kind, 0, 0, 0, 0, 0, 1]);
                    list.extend((id.len() as u32).to_be_bytes());
                    list.extend(&**id);
                }
            }
            // TMV, and the six types.
            ReserveIn::Capabilities => return vec![0, 8, 0, 0x80, 0xea, 0x01, 0, 0],
        }
        let mut b = self.generation.to_be_bytes().to_vec();
        b.extend((list.len() as u32).to_be_bytes());
        b.extend(list);
        b
    }

    /// The key of a registered initiator.
    fn key(&self, nexus: Nexus) -> Option<u64> {
        Some(self.registered.get(&nexus)?.key)
    }

    /// Carries out PERSISTENT RESERVE OUT of an initiator with this name. Returns the attentions of other initiators.
    pub(super) fn change(
        &mut self,
        nexus: Nexus,
        transport_id: &TransportId,
        action: ReserveOut,
        scope: u8,
        bits: u8,
        list: &[u8],
    ) -> Result<Attentions, Refusal> {
        if list.len() != LIST_LEN {
            return Err(SenseData::from(PARAMETER_LENGTH).into());
        }
        // SPEC_I_PT, ALL_TG_PT and APTPL: none is supported.
        if list[20] & 0x0d != 0 {
            return Err(SenseData::parameter(20, Some((list[20] & 0x0d).ilog2() as u8)).into());
        }
        let (key, new_key) = (be64(list, 0), be64(list, 8));
        let own = self.key(nexus);
        if matches!(action, ReserveOut::Register | ReserveOut::RegisterAndIgnore) {
            if action == ReserveOut::Register && own.unwrap_or(0) != key {
                return Err(Refusal::Conflict);
            }
            return self.register(
                nexus,
                Registration { key: new_key, transport_id: transport_id.clone() },
            );
        }
        if own != Some(key) {
            return Err(Refusal::Conflict);
        }
        let kind = || Kind::from_bits(bits).filter(|_| scope == 0);
        let kind = || kind().ok_or(Refusal::Check(SenseData::field(2, None)));
        match action {
            ReserveOut::Reserve => {
                let kind = kind()?;
                match self.reservation {
                    Some(r) if r.kind != kind || !self.holds(r, nexus) => Err(Refusal::Conflict),
                    Some(_) => Ok(vec![]),
                    None => {
                        self.reservation = Some(Reservation { kind, holder: nexus });
                        Ok(vec![])
                    }
                }
            }
            ReserveOut::Release => match self.reservation {
                Some(r) if self.holds(r, nexus) => {
                    if kind()? != r.kind {
                        return Err(SenseData::from(INVALID_RELEASE).into());
                    }
                    Ok(self.release(r, nexus))
                }
                _ => Ok(vec![]),
            },
            ReserveOut::Clear => {
                self.generation = self.generation.wrapping_add(1);
                self.reservation = None;
                let others = std::mem::take(&mut self.registered);
                let others = others.into_keys().filter(|n| *n != nexus);
                Ok(others.map(|n| (n, RESERVATIONS_PREEMPTED)).collect())
            }
            _ => self.preempt(nexus, new_key, kind),
        }
    }

    /// Registers an initiator, changes its key, or forgets it if the key is 0.
    fn register(&mut self, nexus: Nexus, new: Registration) -> Result<Attentions, Refusal> {
        let registered = self.registered.contains_key(&nexus);
        let key = new.key;
        if key != 0 {
            if !registered && self.registered.len() == MAX_REGISTRATIONS {
                return Err(SenseData::from(NO_REGISTRATIONS).into());
            }
            self.registered.insert(nexus, new);
        }
        self.generation = self.generation.wrapping_add(1);
        if key != 0 || !registered {
            return Ok(vec![]);
        }
        let held = self.reservation.filter(|r| self.holds(*r, nexus));
        self.registered.remove(&nexus);
        match held {
            // The others still hold it.
            Some(r) if r.kind.is_of_all() && !self.registered.is_empty() => Ok(vec![]),
            Some(r) => Ok(self.release(r, nexus)),
            None => Ok(vec![]),
        }
    }

    /// Ends the reservation. The other registered initiators are told if it was theirs too.
    fn release(&mut self, r: Reservation, by: Nexus) -> Attentions {
        self.reservation = None;
        let told = self.registered.keys().filter(|n| **n != by && !r.kind.is_of_holder());
        told.map(|n| (*n, RESERVATIONS_RELEASED)).collect()
    }

    /// Forgets the initiators with this key, and takes the reservation if it is theirs.
    fn preempt(
        &mut self,
        nexus: Nexus,
        key: u64,
        kind: impl Fn() -> Result<Kind, Refusal>,
    ) -> Result<Attentions, Refusal> {
        let held = self.reservation;
        let of_all = held.is_some_and(|r| r.kind.is_of_all());
        let takes =
            held.is_some_and(|r| if of_all { key == 0 } else { self.key(r.holder) == Some(key) });
        if key == 0 && !takes {
            return Err(SenseData::parameter(8, None).into());
        }
        let new = if takes { Some(kind()?) } else { None };
        let everyone = of_all && key == 0;
        if !everyone && !self.registered.values().any(|r| r.key == key) {
            return Err(Refusal::Conflict);
        }
        self.generation = self.generation.wrapping_add(1);
        let mut told = Vec::new();
        // An initiator that takes a reservation stays registered.
        self.registered.retain(|n, r| {
            let removed = (everyone || r.key == key) && (*n != nexus || !takes);
            if removed && *n != nexus {
                told.push((*n, REGISTRATIONS_PREEMPTED));
            }
            !removed
        });
        match (held, new) {
            (Some(old), Some(kind)) => {
                if old.kind != kind {
                    let others = self.registered.keys().filter(|n| **n != nexus);
                    told.extend(others.map(|n| (*n, RESERVATIONS_RELEASED)));
                }
                self.reservation = Some(Reservation { kind, holder: nexus });
            }
            // The last of those who hold the reservation has forgotten itself.
            (Some(_), None) if of_all && self.registered.is_empty() => self.reservation = None,
            _ => {}
        }
        Ok(told)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use ReserveOut::{Clear, Preempt, Register, RegisterAndIgnore, Release, Reserve};

    const A: Nexus = Nexus(1);
    const B: Nexus = Nexus(2);
    const C: Nexus = Nexus(3);

    fn name(nexus: Nexus) -> TransportId {
        if nexus == A { (*b"name of A...").into() } else { (*b"B...").into() }
    }

    fn out(
        r: &mut Reservations,
        nexus: Nexus,
        action: ReserveOut,
        kind: u8,
        keys: (u64, u64),
    ) -> Result<Attentions, Refusal> {
        let mut list = [0; LIST_LEN];
        list[..8].copy_from_slice(&keys.0.to_be_bytes());
        list[8..16].copy_from_slice(&keys.1.to_be_bytes());
        r.change(nexus, &name(nexus), action, 0, kind, &list)
    }

    fn registered() -> Reservations {
        let mut r = Reservations::default();
        for (nexus, key) in [(A, 0xa), (B, 0xb)] {
            assert_eq!(out(&mut r, nexus, Register, 0, (0, key)), Ok(vec![]));
        }
        r
    }

    /// A holds the reservation, B is registered and C is not. Each pair says whether one of them may read and write.
    #[test]
    fn each_type_lets_some_read_and_some_write() {
        for (kind, want) in [
            (1, [(true, true), (true, false), (true, false)]),
            (3, [(true, true), (false, false), (false, false)]),
            (5, [(true, true), (true, true), (true, false)]),
            (6, [(true, true), (true, true), (false, false)]),
            (7, [(true, true), (true, true), (true, false)]),
            (8, [(true, true), (true, true), (false, false)]),
        ] {
            let mut r = registered();
            assert_eq!(out(&mut r, A, Reserve, kind, (0xa, 0)), Ok(vec![]));
            let got = [A, B, C].map(|n| (r.allows(n, Access::Read), r.allows(n, Access::Write)));
            assert_eq!(got, want, "type {kind}");
            assert!(r.allows(C, Access::Free));
            let b = r.read(ReserveIn::Reservation);
            assert_eq!((b[7], b[15], b[21]), (16, if kind > 6 { 0 } else { 0xa }, kind));
            let again = out(&mut r, B, Reserve, kind, (0xb, 0));
            assert_eq!(again.is_ok(), kind > 6, "type {kind}: all hold it");
        }
    }

    /// Each descriptor has the key, whether its initiator holds the reservation, the type, and the name.
    #[test]
    fn the_full_status_names_each_initiator() {
        let mut r = registered();
        let ids = [A, B].map(name);
        out(&mut r, A, Reserve, 5, (0xa, 0)).unwrap();
        let b = r.read(ReserveIn::FullStatus);
        let of_a = [
            &[0, 0, 0, 0, 0, 0, 0, 0xa, 0, 0, 0, 0, 1, 5, 0, 0, 0, 0, 0, 1, 0, 0, 0, 12],
            &ids[0][..],
        ];
        let of_b = [
            &[0, 0, 0, 0, 0, 0, 0, 0xb, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 4],
            &ids[1][..],
        ];
        let want = [&[0, 0, 0, 2, 0, 0, 0, 64][..], &of_a.concat(), &of_b.concat()].concat();
        assert_eq!(b, want, "C is not registered");
        out(&mut r, A, Release, 5, (0xa, 0)).unwrap();
        out(&mut r, A, Reserve, 7, (0xa, 0)).unwrap();
        let b = r.read(ReserveIn::FullStatus);
        assert_eq!((b[20], b[21], b[56], b[57]), (1, 7, 1, 7), "all hold it");
        out(&mut r, B, Register, 0, (0xb, 0)).unwrap();
        assert_eq!(r.read(ReserveIn::FullStatus).len(), 8 + 24 + 12);
    }

    #[test]
    fn keys_must_match() {
        let mut r = registered();
        assert_eq!(out(&mut r, A, Register, 0, (1, 2)), Err(Refusal::Conflict));
        assert_eq!(out(&mut r, C, Reserve, 1, (0, 0)), Err(Refusal::Conflict), "not registered");
        assert_eq!(out(&mut r, A, RegisterAndIgnore, 0, (1, 0xaa)), Ok(vec![]));
        assert_eq!(out(&mut r, A, Reserve, 1, (0xa, 0)), Err(Refusal::Conflict), "the old key");
        let b = r.read(ReserveIn::Keys);
        assert_eq!((b[3], b[7], b[15], b[23]), (3, 16, 0xaa, 0xb));
        assert!(
            matches!(out(&mut r, A, Reserve, 2, (0xaa, 0)), Err(Refusal::Check(_))),
            "no such type"
        );
        assert!(
            matches!(r.change(A, &name(A), Clear, 0, 0, &[0; 23]), Err(Refusal::Check(s)) if s.sense == PARAMETER_LENGTH)
        );
    }

    #[test]
    fn a_reservation_ends_and_the_others_are_told() {
        let mut r = registered();
        out(&mut r, A, Reserve, 5, (0xa, 0)).unwrap();
        assert_eq!(out(&mut r, B, Release, 5, (0xb, 0)), Ok(vec![]), "not its own");
        assert_eq!(
            out(&mut r, A, Release, 6, (0xa, 0)),
            Err(Refusal::Check(INVALID_RELEASE.into()))
        );
        assert_eq!(out(&mut r, A, Release, 5, (0xa, 0)), Ok(vec![(B, RESERVATIONS_RELEASED)]));
        out(&mut r, A, Reserve, 5, (0xa, 0)).unwrap();
        assert_eq!(out(&mut r, A, Register, 0, (0xa, 0)), Ok(vec![(B, RESERVATIONS_RELEASED)]));
        assert!(r.allows(C, Access::Write));
        out(&mut r, B, Reserve, 7, (0xb, 0)).unwrap();
        out(&mut r, A, Register, 0, (0, 0xa)).unwrap();
        assert_eq!(out(&mut r, B, Register, 0, (0xb, 0)), Ok(vec![]), "A still holds it");
        assert!(!r.allows(C, Access::Write));
        assert_eq!(out(&mut r, A, Clear, 0, (0xa, 0)), Ok(vec![]));
        assert!(r.allows(C, Access::Write));
    }

    #[test]
    fn a_reservation_of_all_ends_with_the_last_of_them() {
        for kind in [7, 8] {
            let mut r = registered();
            out(&mut r, A, Reserve, kind, (0xa, 0)).unwrap();
            assert_eq!(out(&mut r, A, Register, 0, (0xa, 0)), Ok(vec![]));
            assert!(!r.allows(C, Access::Write), "B holds it");
            assert_eq!(out(&mut r, B, Register, 0, (0xb, 0)), Ok(vec![]));
            assert!(r.allows(C, Access::Write) && r.allows(C, Access::Read), "type {kind}");
            assert_eq!(r.read(ReserveIn::Reservation)[4..], [0; 4]);
        }
    }

    #[test]
    fn a_preempted_initiator_loses_its_registration() {
        let mut r = registered();
        out(&mut r, A, Reserve, 3, (0xa, 0)).unwrap();
        assert_eq!(out(&mut r, B, Preempt, 3, (0xb, 0xc)), Err(Refusal::Conflict), "no such key");
        assert!(matches!(out(&mut r, B, Preempt, 3, (0xb, 0)), Err(Refusal::Check(_))));
        assert_eq!(out(&mut r, B, Preempt, 3, (0xb, 0xa)), Ok(vec![(A, REGISTRATIONS_PREEMPTED)]));
        assert!(r.allows(B, Access::Write) && !r.allows(A, Access::Read));
        out(&mut r, C, Register, 0, (0, 0xc)).unwrap();
        assert_eq!(out(&mut r, B, Preempt, 8, (0xb, 0xb)), Ok(vec![(C, RESERVATIONS_RELEASED)]));
        assert!(r.allows(C, Access::Write), "all registered ones hold it now");
        assert_eq!(out(&mut r, C, Preempt, 1, (0xc, 0)), Ok(vec![(B, REGISTRATIONS_PREEMPTED)]));
        assert_eq!((r.allows(C, Access::Write), r.allows(B, Access::Write)), (true, false));
    }
}
