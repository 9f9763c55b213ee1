//! The state word that all queues of a disk compare with the value they saw last, and the words with which queues
//! answer a freeze.

/// The bits that count the freezes of the disk.
pub(crate) const FREEZES: u32 = 0xff;
/// Set while queues that were dropped with work in flight wait to be polled.
pub(crate) const ORPHANS: u32 = 0x100;
/// Set while writes are held in the order window. A queue compares the word without this bit: while the bit is set,
/// each call looks at the window, and at the rest only if that has changed.
pub(crate) const EARLY: u32 = 0x200;
/// One step of the version, which changes with layout, freezes and queues.
pub(crate) const VERSION: u32 = 0x400;

/// Returns whether the disk is frozen.
pub(crate) fn is_frozen(state: u32) -> bool {
    state & FREEZES != 0
}

/// The version in a state: 22 bits, which wrap around.
pub(crate) fn version(state: u32) -> u32 {
    state / VERSION
}

/// The answer of a queue to the freeze that began with `version`: whether it has work.
pub(crate) fn word(version: u32, busy: bool) -> u32 {
    version << 1 | u32::from(busy)
}

/// The first word of a queue that is opened while the disk has this state. No freeze has asked it yet.
pub(crate) fn first_word(state: u32) -> u32 {
    word(version(state), true)
}

/// Returns whether a word says that the queue is idle, and answers the freeze that began with `version` or a later
/// one.
pub(crate) fn is_idle_since(said: u32, began: u32) -> bool {
    let newer = (said >> 1).wrapping_sub(began) & (u32::MAX / VERSION);
    newer < u32::MAX / VERSION / 2 && said & 1 == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_from_before_the_freeze_says_nothing_of_it() {
        let most = u32::MAX / VERSION;
        for began in [0, 1, 7, most / 2, most - 1, most] {
            assert!(is_idle_since(word(began, false), began));
            assert!(!is_idle_since(word(began, true), began));
            let next = version((began.wrapping_mul(VERSION)).wrapping_add(VERSION));
            assert!(is_idle_since(word(next, false), began), "the version wraps");
            assert!(!is_idle_since(word(began, false), next));
        }
        assert!(!is_idle_since(first_word(3 * VERSION), 3), "a new queue has not answered");
    }
}
