//! Bugs of the engine, to prove that its tests would find them. `scripts/plant` copies this file to
//! `crates/core/src/planted.rs` of a work tree of its own; the patches beside it put the bugs where they belong. A
//! process has one of them switched on at a time.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// A bug of one of the classes that the original had, or that its tests look for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Bug {
    /// A write that provably did nothing keeps its reservation.
    ReservationNotUndone = 1,
    /// After an abort the plug stays busy with nothing in flight (B30).
    PluggedAfterAbort,
    /// The plug is idle between a completion and the write that follows it (B10).
    PluggedClearedEarly,
    /// The parts of a split write go past the plug, so that others come between them (B24).
    PartsSeparated,
    /// A report that is older than the error is believed (CODE-2).
    StaleReport,
    /// A command that came back late completes its BIOs again.
    LateCountedTwice,
    /// The write pointer is reset when the reset is submitted (B25).
    ResetAtSubmission,
    /// The appends of a run all get the sector of the first.
    AppendSectorWrong,
    /// Parked writes merge past the transfer limit.
    MergePastLimit,
    /// The write pointer moves at completion instead of reservation (I3).
    WpAtCompletion,
    /// An aborted write is reported as done.
    AbortAsOk,
    /// A freeze does not wait.
    FreezeTooEarly,
    /// A zone that waits for a tag is forgotten: the wake-up that never comes.
    LostWake,
    /// An undo hits the generation after a reset (M4).
    UndoAfterReset,
    /// An error leaves the write pointer as it was (E1, E8).
    ErrorKeepsWp,
    /// What is aborted goes to the queue that noticed, not to its owner.
    AbortToWrongQueue,
    /// A queue that is dropped with work in flight is forgotten.
    OrphanForgotten,
    /// A busy command is given to the client instead of sent again.
    BusyNotRetried,
    /// NOWAIT fails after the reservation (B17a).
    NowaitAfterReservation,
    /// A finish leaves the write pointer at the start.
    FinishAsReset,
    /// Parts are longer than the device takes.
    PartsPastLimit,
    /// A failed append reports a sector (A10).
    FailedAppendHasSector,
    /// A revalidation keeps the old write pointers (V4).
    RevalidationKeepsPlugs,
    /// Writes of different kinds merge: FUA and others (W15).
    MergeMixesKinds,
    /// A split write completes with its first part.
    ParentCompletesEarly,
    /// A report is applied by its place instead of its start (CODE-3).
    ReportByIndex,
    /// A deadline that has passed leaves the zone as it was.
    TimeoutKeepsWp,
    /// FUA and PREFLUSH do not go down with parked writes (W16).
    FlagsDropped,
    /// A flush is done without a device.
    FlushSwallowed,
    /// An error makes the neighbour's write pointer unknown too (E2).
    ErrorSpreads,
    /// A write that fits is refused.
    SpuriousRefusal,
    /// A write that parks overtakes those that wait (I2).
    ParkedInFront,
    /// A write that fails takes its tag with it.
    TagLost,
    /// A refused write makes the write pointer unknown (W9).
    RefusalPoisons,
    /// Parked writes merge into commands of more BIOs than the device takes.
    MergePastBios,
    /// The attribute `nomerges` does nothing (W15e).
    NomergesIgnored,
    /// Strict management does not look whether writes are in flight (M5).
    StrictIgnoresBusy,
    /// A frozen disk takes new BIOs (W22).
    FreezeTakesNew,
    /// A write that spans zones is admitted where it can be, and refused elsewhere (W4).
    SplitInHalves,
    /// The parts of a split BIO use its buffer from the end.
    PartsFromTheEnd,
    /// Management of several zones leaves out the last (M1).
    RangeStopsShort,
    /// A reset of all zones leaves the write pointers (M3).
    ResetAllKeepsPlugs,
    /// A report does not make a write pointer known again (E4).
    ReportIgnored,
    /// A resync is believed though a write has come since (E6, E10).
    ResyncWhileBusy,
    /// A deadline passes and nothing happens.
    DeadlineForgotten,
    /// A native append leaves the zone's write pointer known (A7, A8).
    NativeAppendTracked,
    /// The places of native appends never tell the write pointer (A7).
    AppendNeverTells,
    /// The append that comes back last tells the write pointer, not the last one in the zone (A7).
    AppendLastBackTells,
    /// A native append with an unknown outcome counts as one that wrote nothing (A7, E1).
    AppendFailureHarmless,
    /// The end of a write does not tell the write pointer after a native append beside it (A7).
    WriteBesideAppendUntold,
    /// A report that comes back while a native append is on its way is believed (E6).
    ReportBesideAppend,
    /// A zone that has become read-only or offline is written to again (R32).
    RefusalForgotten,
    /// An error sends a report by itself (I9, E3).
    OwnReport,
    /// A revalidation keeps the old layout (V7).
    OldLayoutKept,
    /// A merged command fails, and its first BIO does not (E9).
    PartlyOk,
    /// One of those that are aborted is never given back (I7).
    AbortForgotten,
    /// A merged command says it is as long as its first run.
    MergedLengthWrong,
    /// A native append that failed is sent again, though a part of it may be there.
    AppendRetried,
    /// A zone in line for a tag is busy even if all that waited was aborted (M5).
    LineCountsAsBusy,
    /// A full zone is shown as active (R29).
    FullLooksActive,
    /// A report changes a zone whose write pointer is known (E5).
    ReportOverridesHealthy,
    /// The single writer does not go on after a turn that ended with an error: the wake-up that never comes (Q8).
    GateLostWake,
    /// A zone whose waiting writes are aborted while it is listed stays busy, with no entry in the list (Q7).
    AbortKeepsListed,
    /// Attributes that need a drained disk change at once (Q9).
    ToggleAtOnce,
    /// A short turn ends without a look at the zones that were listed meanwhile (Q8).
    ShortTurnEndsAlone,
    /// A queue that lists a zone does not see that another has a short turn (Q1).
    ShortTurnForgotten,
    /// The single writer never looks at the deadline of a zone.
    DeadlineIgnored,
    /// A queue that has a tag back does not ask the scheduler for the next request.
    SchedulerAsleep,
    /// A zone lock is not taken: two writes of a zone are sent at a time (C1).
    ZoneLockForgotten,
    /// A zone of which a write has failed goes on while others are in flight.
    RetryBeforeDrained,
    /// A second queue sends writes of a zone that has some in flight on another.
    HomeForgotten,
    /// A zone goes on after failures, however many there are in a row.
    RetryUnbounded,
    /// After a failure a positional write goes where the write pointer is.
    PositionalPlacedAnew,
    /// A zone goes on after a failure though what was acknowledged before is not there any more.
    LossUnnoticed,
    /// The layer believes its own report of a zone though a reset or finish has ended the recovery that it was for.
    RecoveryNotEnded,
    /// The layer reports a zone by itself though a write of it that was given up is still at the device.
    LateRecovered,

    // ---- races: only a model checker meets them, for the simulation has one thread ----
    /// A writer that finds its zone busy lets go of the lock before it parks.
    UnlockBeforePark,
    /// A write is admitted although its plug belongs to the lock.
    AdmitPastLock,
    /// A completion stores the word of the plug, without a look whether it has changed.
    CompletionStored,
    /// Taking a plug under the lock stores its word, without a look whether it has changed.
    HoldStored,
    /// Every other queue locks the shards of a spanning write in descending order (P16).
    ShardsInAnyOrder,
    /// A queue acknowledges a freeze while it has work.
    AckBeforeIdle,
    /// A thaw wakes no queue.
    ThawWakesNobody,
    /// A client that was turned away arms, and does not look for the thaw once more.
    ThawNotSeen,
    /// The owner is woken, and then the BIO is delivered.
    WakeBeforePush,
    /// A mailbox whose owner has gone takes BIOs.
    ClosedTakesMore,
    /// The hint that there is something to collect is withdrawn after the mailbox was unlocked.
    HintWithdrawnLate,
    /// A queue that is dropped with work in flight wakes no other queue.
    OrphanWakesNobody,
    /// A visitor clears the orphan bit although another queue has added orphans since.
    OrphanBitLost,
    /// Orphans come back to their list with work, and a queue that found the list empty meanwhile is not woken.
    OrphansBackInSilence,
    /// A queue that asks for the orphans' deadlines while they are off their list leaves no mark that it has missed
    /// them.
    OrphanLookUnseen,
    /// A revalidation does not wait for its freeze.
    RevalidationDoesNotWait,
    /// A queue that sleeps behind an orphan's command does not arm the orphan's queue of the device.
    OrphanUnarmed,
    /// `lock` mode: a queue that gives a tag back to another queue does not wake that queue.
    TagBackInSilence,
    /// A queue that lists a zone unlocks the list before the zone's plug has the ticket.
    TicketLate,
    /// A turn goes on with a zone whose writes were aborted before it was listed.
    ResumeOfAborted,
    /// The single writer finds no zone listed, and frees the token only the next time it has the lock.
    TokenFreedLate,
    /// A queue whose wait with the token is over goes on though another has gone on already.
    WaitGoesOn,
    /// A queue looks whether a request waits in the scheduler before its own command counts as back.
    PlaceFreedLate,
    /// An attribute that needs a drained disk changes after the thaw.
    ThawBeforeChange,
    /// A queue that inherits work of a dead queue is not woken.
    ErrandInSilence,
    /// What a dead queue leaves does not make the other busy for a freeze.
    ErrandKeepsIdle,
    /// A held write outlives a reset of its zone (H8).
    EarlyKeptAcrossReset,
    /// A held write is not refused when its time is over (H5).
    EarlyHeldForever,
    /// A held write is refused after half of its time (H5).
    EarlyExpiresSoon,
    /// A held write whose place was taken is admitted at the write pointer (H4).
    EarlyAfterOvertaking,
    /// Only one held write follows when a gap fills (H3).
    EarlyNotFollowed,
    /// The room of a held write that was admitted is not given back (H6).
    EarlyRoomKept,
    /// The held writes of a queue that goes away stay (H10).
    EarlyStaysBehind,
    /// Held writes expire while the disk is frozen (H9).
    EarlyExpiresFrozen,
    /// Of a write that was split when it was held, one part is admitted (H11).
    EarlySplitHalf,
    /// The answer of a command has the identifier of another.
    TargetAnswersSwapped,
    /// A write comes up when the first part of its data is there (K4).
    TargetHalfData,
    /// The second part of the data of a write goes where the first is (K4).
    TargetOffsetIgnored,
    /// What is held stays when its connection ends (H10).
    TargetHeldKept,
    /// A read is answered with what another command has left in memory.
    TargetOtherMemory,
    /// A command whose data digest is wrong is carried out (K5).
    TargetSpoiltCarriedOut,
    /// A host may be silent for as long as it likes (J6).
    TargetSilenceIgnored,
    /// An append answers with its place on the disk, not in the namespace.
    TargetAppendOfDisk,
    /// A write that the disk refuses while the server ends is answered so (L12).
    TargetEndRefuses,
    /// A server that ends does not wait for the disks (L11).
    TargetEndWithoutAnswers,
}

impl Bug {
    /// Every one that the simulation must catch.
    pub const ALL: [Bug; 95] = [
        Bug::ReservationNotUndone,
        Bug::PluggedAfterAbort,
        Bug::PluggedClearedEarly,
        Bug::PartsSeparated,
        Bug::StaleReport,
        Bug::LateCountedTwice,
        Bug::ResetAtSubmission,
        Bug::AppendSectorWrong,
        Bug::MergePastLimit,
        Bug::WpAtCompletion,
        Bug::AbortAsOk,
        Bug::FreezeTooEarly,
        Bug::LostWake,
        Bug::UndoAfterReset,
        Bug::ErrorKeepsWp,
        Bug::AbortToWrongQueue,
        Bug::OrphanForgotten,
        Bug::BusyNotRetried,
        Bug::NowaitAfterReservation,
        Bug::FinishAsReset,
        Bug::PartsPastLimit,
        Bug::FailedAppendHasSector,
        Bug::RevalidationKeepsPlugs,
        Bug::MergeMixesKinds,
        Bug::ParentCompletesEarly,
        Bug::ReportByIndex,
        Bug::TimeoutKeepsWp,
        Bug::FlagsDropped,
        Bug::FlushSwallowed,
        Bug::ErrorSpreads,
        Bug::SpuriousRefusal,
        Bug::ParkedInFront,
        Bug::TagLost,
        Bug::RefusalPoisons,
        Bug::MergePastBios,
        Bug::NomergesIgnored,
        Bug::StrictIgnoresBusy,
        Bug::FreezeTakesNew,
        Bug::SplitInHalves,
        Bug::PartsFromTheEnd,
        Bug::RangeStopsShort,
        Bug::ResetAllKeepsPlugs,
        Bug::ReportIgnored,
        Bug::ResyncWhileBusy,
        Bug::DeadlineForgotten,
        Bug::NativeAppendTracked,
        Bug::AppendNeverTells,
        Bug::AppendLastBackTells,
        Bug::AppendFailureHarmless,
        Bug::WriteBesideAppendUntold,
        Bug::ReportBesideAppend,
        Bug::RefusalForgotten,
        Bug::OwnReport,
        Bug::OldLayoutKept,
        Bug::PartlyOk,
        Bug::AbortForgotten,
        Bug::MergedLengthWrong,
        Bug::AppendRetried,
        Bug::LineCountsAsBusy,
        Bug::FullLooksActive,
        Bug::ReportOverridesHealthy,
        Bug::GateLostWake,
        Bug::AbortKeepsListed,
        Bug::ToggleAtOnce,
        Bug::ShortTurnEndsAlone,
        Bug::ShortTurnForgotten,
        Bug::DeadlineIgnored,
        Bug::SchedulerAsleep,
        Bug::ZoneLockForgotten,
        Bug::RetryBeforeDrained,
        Bug::HomeForgotten,
        Bug::RetryUnbounded,
        Bug::PositionalPlacedAnew,
        Bug::LossUnnoticed,
        Bug::RecoveryNotEnded,
        Bug::LateRecovered,
        Bug::EarlyKeptAcrossReset,
        Bug::EarlyHeldForever,
        Bug::EarlyExpiresSoon,
        Bug::EarlyAfterOvertaking,
        Bug::EarlyNotFollowed,
        Bug::EarlyRoomKept,
        Bug::EarlyStaysBehind,
        Bug::EarlyExpiresFrozen,
        Bug::EarlySplitHalf,
        Bug::TargetAnswersSwapped,
        Bug::TargetHalfData,
        Bug::TargetOffsetIgnored,
        Bug::TargetHeldKept,
        Bug::TargetOtherMemory,
        Bug::TargetSpoiltCarriedOut,
        Bug::TargetSilenceIgnored,
        Bug::TargetAppendOfDisk,
        Bug::TargetEndRefuses,
        Bug::TargetEndWithoutAnswers,
    ];

    /// The races: those that the model checkers must catch (`scripts/loom`, `scripts/shuttle`), beside some of the
    /// others.
    pub const RACES: [Bug; 26] = [
        Bug::UnlockBeforePark,
        Bug::AdmitPastLock,
        Bug::CompletionStored,
        Bug::HoldStored,
        Bug::ShardsInAnyOrder,
        Bug::AckBeforeIdle,
        Bug::ThawWakesNobody,
        Bug::ThawNotSeen,
        Bug::WakeBeforePush,
        Bug::ClosedTakesMore,
        Bug::HintWithdrawnLate,
        Bug::OrphanWakesNobody,
        Bug::OrphanBitLost,
        Bug::OrphansBackInSilence,
        Bug::OrphanLookUnseen,
        Bug::RevalidationDoesNotWait,
        Bug::OrphanUnarmed,
        Bug::TagBackInSilence,
        Bug::TicketLate,
        Bug::ResumeOfAborted,
        Bug::TokenFreedLate,
        Bug::WaitGoesOn,
        Bug::PlaceFreedLate,
        Bug::ThawBeforeChange,
        Bug::ErrandInSilence,
        Bug::ErrandKeepsIdle,
    ];

    /// The bug of that name.
    pub fn from_name(name: &str) -> Option<Bug> {
        Self::ALL.into_iter().chain(Self::RACES).find(|b| b.name() == name)
    }

    /// Its name.
    pub fn name(self) -> String {
        format!("{self:?}")
    }
}

/// Number of the bug that is switched on; 0: none. `UNSET`: `ZONEPLUG_PLANT` was not read yet.
static PLANTED: AtomicU32 = AtomicU32::new(UNSET);
const UNSET: u32 = u32::MAX;

/// Switches a bug on, or the one off that is on.
pub fn plant(bug: Option<Bug>) {
    PLANTED.store(bug.map_or(0, |b| b as u32), Relaxed);
}

/// Whether `bug` is switched on: by [`plant`], or by its name in the variable `ZONEPLUG_PLANT`.
#[inline]
pub fn planted(bug: Bug) -> bool {
    let mut on = PLANTED.load(Relaxed);
    if on == UNSET {
        on = from_env();
    }
    on == bug as u32
}

#[cold]
fn from_env() -> u32 {
    let bug = std::env::var("ZONEPLUG_PLANT").ok().map(|name| {
        Bug::from_name(&name).unwrap_or_else(|| panic!("ZONEPLUG_PLANT: no bug is called {name}"))
    });
    plant(bug);
    bug.map_or(0, |b| b as u32)
}
