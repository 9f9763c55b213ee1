//! The regression classes that a world can exercise: the regressions (R) of `docs/requirements.md`, and classes for
//! faults and deadlines. A world counts the events that occurred, not those that it intended.

macro_rules! classes {
    ($($name:ident $text:literal,)*) => {
        /// A regression class.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(usize)]
        #[allow(missing_docs)] // each has its text in the table
        pub enum Class { $($name),* }

        impl Class {
            /// All classes.
            pub const ALL: &[Class] = &[$(Class::$name),*];

            /// Returns its code in `docs/requirements.md`, or a name.
            pub const fn name(self) -> &'static str {
                match self { $(Class::$name => stringify!($name)),* }
            }

            /// Returns the event that exercises it.
            pub const fn text(self) -> &'static str {
                match self { $(Class::$name => $text),* }
            }
        }
    };
}

classes! {
    R1 "a misplaced first write of an empty zone is refused and changes nothing",
    R2 "a misplaced write behind writes in flight fails alone",
    R3 "writes wait on a device that completes inside of submit",
    R4 "write and reset in turns by two clients",
    R5 "first writers of an empty zone from several queues",
    R7 "a reset or finish aborts writes that wait",
    R8 "a reset or finish that fails",
    R9 "a reset or finish of a zone with writes in flight",
    R10 "a write fails and those behind it are aborted",
    R11 "a write fails while the disk is being frozen",
    R12 "busy commands while the disk is being frozen",
    R14 "a report that is older than an error is not believed",
    R15 "a write fails between reservation and medium, and the zone goes on",
    R16 "a command of several BIOs is carried out in part",
    R17 "commands end without having been carried out",
    R18 "a BIO that may not wait is refused before anything is reserved",
    R19 "writes wait and complete on a queue with one tag",
    R20 "PREFLUSH and FUA writes and flushes between other writes",
    R21 "a write that spans zones",
    R22 "a write longer than the device takes",
    R23 "writes that waited go out as one command",
    R24 "write-zeroes merge",
    R25 "emulated appends of several queues in one zone",
    R26 "an invalid append is refused",
    R27 "appends fail and the zone recovers",
    R28 "native appends",
    AppendThenWrite "a write follows native appends in its zone",
    AppendBesideWrite "a write and a native append of a zone are on their way at a time",
    R29 "what is cached is what a report says",
    R30 "a revalidation under load",
    R32 "zones die under load",
    R33 "open and active limits pass through and the zone goes on",
    R34 "a single writer or a scheduler is switched under load",
    R35 "a zone has waited for the single writer past its deadline",
    R37 "reads pass more writes than there are tags",
    R40 "a queue is closed with work in flight",
    R41 "the device has zones of another size, under a layer of powers of two",
    R43 "a resync after something else moved a write pointer",
    R44 "each BIO completes once in a world of faults",
    R45 "reset and write from the completion",
    Cut "power cuts",
    Restart "the disk is opened again after a power cut",
    Grow "the layout changes under load",
    Gone "the device vanishes under load",
    Late "a command outlives its deadline and completes late",
    Lost "a command never completes and its deadline ends it",
    Ghost "what a deadline gave up is carried out afterwards",
    CutAppend "a power cut after native appends",
    Torn "torn writes and short transfers",
    Delay "completions that come late",
    Storm "a device that is busy",
    Freeze "a freeze under load",
    Attribute "attributes that change under load",
    Several "several writes of a zone are in flight",
    Recovery "a zone recovers by itself after a failure",
    Placed "an append that failed is placed elsewhere",
    GivenUp "a recovery is given up after the last attempt",
    Asked "the layer reports a zone with one write in flight",
    Thaw "a zone recovers by itself while the disk is being frozen",
    Depth "the number of writes in flight changes under load",
    DepthRefused "attributes that do not go together are refused",
    Mixed "a list mixes zones and invalid BIOs",
    Join "the disk stands on a join of parts",
    LockSpan "a write that spans zones where zones are locked",
    Helped "another queue polls for an owner that looks later",
    Cause "a split write says why it failed",
    AtOnce "a BIO that may not wait is sent at once",
    Full "the device has as many commands as queue_depth allows",
    Expired "a read that is late passes others in the scheduler",
    Misaligned "a write is torn in the middle of a block",
    LastConventional "the last zone is conventional",
    Shuffle "a device that reorders commands",
    Early "writes of a zone come in another order, and are held until their turn",
    LostWrite "a write is lost, and those that wait behind it expire",
    EarlyRestart "a zone is reset or finished while writes are held",
    Overtaken "the place of a held write is taken",
    Target "hosts reach the disk over NVMe/TCP",
    Reordered "the network reorders the writes of a zone on their way to the target",
    HeldForOrder "writes that the network reordered are held until their turn",
    HeldTooLong "a write waits for one that does not come in time",
    TooLate "a host is told that a write was refused for its place",
    CutLink "a connection is cut with commands in flight",
    LostAnswer "a host loses a connection with commands in flight",
    HeldLost "a connection ends while writes of it are held",
    LateLanding "a write whose answer was lost is on the medium",
    Slow "the target ends a connection that makes no progress",
    Silent "a host gives no sign of life, and its controller ends",
    Reset "a host resets its controller with commands in flight",
    Awaited "the target ends a queue whose host has yet to acknowledge the answer of an append",
    Authenticated "a host proves on a queue that it knows its key",
    AuthenticatedAgain "a host authenticates again with commands in flight",
    KeyExchange "a queue has authenticated by a value that was computed elsewhere",
    Denied "a host fails to authenticate again, and the target refuses its commands",
    AccessLost "a host loses access by its admin queue, with commands in flight on others",
    AppendOpen "a queue ends with an append unanswered",
    DataOpen "a queue ends before all data of a command have come",
    HandOver "a server hands the disk over to the next one with commands in flight",
    HandOverAppend "a server hands the disk over with an append unanswered",
    HandOverHeld "a server hands the disk over while writes are held",
    Spoilt "data change on their way, and the command is sent again",
    FuzzyReset "a reset or finish over the network meets writes",
    Refused "the target refuses a command",
    Conventional "a namespace of conventional zones",
}

/// The number of times that each class was exercised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Coverage(pub Vec<u64>);

impl Default for Coverage {
    fn default() -> Self {
        Coverage(vec![0; Class::ALL.len()])
    }
}

impl Coverage {
    /// Returns the count of one class.
    pub fn of(&self, class: Class) -> u64 {
        self.0[class as usize]
    }

    /// Counts an occurrence.
    pub(crate) fn hit(&mut self, class: Class) {
        self.0[class as usize] += 1;
    }

    /// Adds the counts of another world.
    pub fn add(&mut self, o: &Coverage) {
        for (a, b) in self.0.iter_mut().zip(&o.0) {
            *a += b;
        }
    }

    /// Returns the classes that no world has exercised.
    pub fn missing(&self) -> impl Iterator<Item = Class> + '_ {
        Class::ALL.iter().copied().filter(|&c| self.of(c) == 0)
    }
}
