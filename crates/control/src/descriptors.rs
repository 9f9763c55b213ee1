//! Sends open files over a Unix socket (`SCM_RIGHTS`), before the line that describes them.
//!
//! The kernel limits the number of files in a message. So the line follows as many blanks as there are further
//! messages, and each of these carries its share of the files.

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Most files of a message. The kernel's limit is 253.
const MOST: usize = 64;

/// Sends `files`. The caller sends the line that describes them next.
pub(crate) fn send(socket: impl AsFd, files: &[BorrowedFd<'_>]) -> io::Result<()> {
    for share in files.chunks(MOST) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !control.push(SendAncillaryMessage::ScmRights(share)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        loop {
            match sendmsg(&socket, &[IoSlice::new(b" ")], &mut control, SendFlags::NOSIGNAL) {
                Ok(_) => break,
                Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }
    Ok(())
}

/// Reads some bytes, and adds the files that come with them to `files`.
pub(crate) fn receive(
    socket: impl AsFd,
    bytes: &mut [u8],
    files: &mut Vec<OwnedFd>,
) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let got = loop {
        let mut bytes = [IoSliceMut::new(bytes)];
        match recvmsg(&socket, &mut bytes, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            got => break got?,
        }
    };
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(all) = message {
            files.extend(all);
        }
    }
    Ok(got.bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::{Read, Write};
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::net::UnixStream;

    /// 200 disks may have so many files.
    #[test]
    fn four_hundred_files_come_in_their_order_in_front_of_the_line() {
        let dir = std::env::temp_dir().join(format!("zoneplug-descriptors-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let (mut one, mut other) = UnixStream::pair().unwrap();
        let files: Vec<File> =
            (0..400).map(|n| File::create(dir.join(n.to_string())).unwrap()).collect();
        let sender = std::thread::spawn({
            let inodes: Vec<u64> = files.iter().map(|f| f.metadata().unwrap().ino()).collect();
            move || {
                let all: Vec<BorrowedFd<'_>> = files.iter().map(AsFd::as_fd).collect();
                send(&one, &all).unwrap();
                one.write_all(b"{}\n").unwrap();
                inodes
            }
        });
        let (mut got, mut text) = (Vec::new(), Vec::new());
        while !text.ends_with(b"\n") {
            let mut bytes = [0; 16];
            let n = receive(&other, &mut bytes, &mut got).unwrap();
            assert!(n > 0, "the end");
            text.extend_from_slice(&bytes[..n]);
        }
        assert_eq!(String::from_utf8(text).unwrap().trim(), "{}");
        let inode = |fd: OwnedFd| File::from(fd).metadata().unwrap().ino();
        assert_eq!(got.into_iter().map(inode).collect::<Vec<_>>(), sender.join().unwrap());
        assert_eq!(other.read(&mut [0; 1]).unwrap(), 0);
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
