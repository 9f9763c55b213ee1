//! Answers that one command hands to the kernel together (`UBLK_F_BATCH_IO`). Plain values; this module makes no
//! call.
//!
//! A command refers to a list of answers. The kernel may read the list until it has answered the command, so
//! meanwhile answers go to another list.

use super::abi::{self, ELEMENT_LEN};
use std::io;

/// Lists of answers, used again and again.
#[derive(Debug)]
pub(super) struct AnswerLists {
    /// Each has room for the answers of all tags, so it never moves.
    lists: Vec<Vec<u8>>,
    /// The list that answers go to.
    open: usize,
    /// The other lists that no command refers to.
    free: Vec<usize>,
    depth: u16,
}

/// A list that a command is to be sent about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AnswerList {
    /// The number of the list, for [`AnswerLists::taken`].
    pub(super) number: usize,
    pub(super) elements: u16,
    pub(super) ptr: *const u8,
}

impl AnswerList {
    /// The length of the list in bytes.
    pub(super) fn bytes(&self) -> i32 {
        i32::from(self.elements) * ELEMENT_LEN as i32
    }
}

impl AnswerLists {
    pub(super) fn new(depth: u16) -> AnswerLists {
        let mut lists = AnswerLists { lists: Vec::new(), open: 0, free: Vec::new(), depth };
        lists.open = lists.add();
        // Almost always the kernel has answered a command before the next one is sent.
        let second = lists.add();
        lists.free.push(second);
        lists
    }

    fn add(&mut self) -> usize {
        self.lists.push(Vec::with_capacity(usize::from(self.depth) * ELEMENT_LEN));
        self.lists.len() - 1
    }

    /// Adds an answer. Each tag has one at most until the next [`AnswerLists::take`].
    pub(super) fn push(&mut self, tag: u16, result: i32, append: u64) {
        let list = &mut self.lists[self.open];
        assert!(list.len() + ELEMENT_LEN <= list.capacity(), "one answer for each tag");
        list.extend_from_slice(&abi::element(tag, result, append));
    }

    /// The answers since the last call, if there are any. They stay where they are until [`AnswerLists::taken`].
    pub(super) fn take(&mut self) -> Option<AnswerList> {
        let (number, list) = (self.open, &self.lists[self.open]);
        if list.is_empty() {
            return None;
        }
        let taken =
            AnswerList { number, elements: (list.len() / ELEMENT_LEN) as u16, ptr: list.as_ptr() };
        self.open = match self.free.pop() {
            Some(free) => free,
            None => self.add(),
        };
        Some(taken)
    }

    /// Whether there are answers that were not taken.
    pub(super) fn has_answers(&self) -> bool {
        !self.lists[self.open].is_empty()
    }

    /// The number of lists that the kernel has not answered.
    pub(super) fn in_flight(&self) -> usize {
        self.lists.len() - 1 - self.free.len()
    }

    /// The kernel has answered the command about a list: with the number of bytes that it has taken, or an error.
    /// It takes less than all only if it refuses an answer, whose request would then never end.
    pub(super) fn taken(&mut self, number: usize, result: i32) -> io::Result<()> {
        if result < 0 {
            return Err(io::Error::from_raw_os_error(-result));
        }
        let list = &mut self.lists[number];
        if result as usize != list.len() {
            let nth = result as usize / ELEMENT_LEN;
            return Err(io::Error::other(format!(
                "Linux refused an answer: {nth} of {} were taken",
                list.len() / ELEMENT_LEN
            )));
        }
        list.clear();
        self.free.push(number);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tags(lists: &AnswerLists, list: AnswerList) -> Vec<u8> {
        let bytes = &lists.lists[list.number];
        assert_eq!(bytes.as_ptr(), list.ptr, "the list has not moved");
        assert_eq!(bytes.len(), usize::from(list.elements) * ELEMENT_LEN);
        bytes.chunks(ELEMENT_LEN).map(|e| e[0]).collect()
    }

    /// While the kernel reads a list, answers go to another one. U6.
    #[test]
    fn a_list_stays_as_it_is_until_the_kernel_has_taken_it() {
        let mut lists = AnswerLists::new(4);
        assert_eq!(lists.take(), None);
        let mut sent = Vec::new();
        for round in 0..5 {
            (0..3).for_each(|i| lists.push(round * 3 + i, 4096, 0));
            sent.push(lists.take().unwrap());
            assert_eq!(lists.in_flight(), usize::from(round) + 1);
        }
        for (round, list) in sent.iter().enumerate().rev() {
            let first = round as u8 * 3;
            assert_eq!(tags(&lists, *list), [first, first + 1, first + 2]);
            lists.taken(list.number, 3 * ELEMENT_LEN as i32).unwrap();
        }
        assert_eq!(lists.in_flight(), 0);
        // They are used again.
        for round in 0..20 {
            (0..4).for_each(|tag| lists.push(tag, round, 0));
            let list = lists.take().unwrap();
            assert_eq!(tags(&lists, list), [0, 1, 2, 3]);
            lists.taken(list.number, 4 * ELEMENT_LEN as i32).unwrap();
        }
        assert_eq!(lists.lists.len(), 6);
    }

    /// U6.
    #[test]
    fn an_answer_that_the_kernel_refuses_is_an_error() {
        for result in [-libc::EINVAL, ELEMENT_LEN as i32, 0] {
            let mut lists = AnswerLists::new(2);
            lists.push(0, 4096, 0);
            lists.push(1, 4096, 0);
            let list = lists.take().unwrap();
            assert!(lists.taken(list.number, result).is_err(), "{result}");
        }
    }
}
