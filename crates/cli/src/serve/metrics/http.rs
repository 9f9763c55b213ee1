//! A server of HTTP that gives one text to whoever asks for it. One thread has all connections and never waits for one of
//! them: each has a time limit, and their number and the length of a request are limited. It holds nothing of a disk but
//! while it makes the text.
//!
//! It is a loop around poll(2) because the small HTTP servers that exist start a thread for each connection and set no time
//! limits. `httparse` reads the requests.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// Longest head of a request.
pub(super) const MAX_HEAD: usize = 8 << 10;
/// Most lines of a head.
const MAX_HEADERS: usize = 64;
/// Most that is read of a client after its request, so that it sees the answer and no reset.
const MAX_REST: usize = 64 << 10;

/// What connections may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// Connections at a time.
    pub(super) most: usize,
    /// Time for a whole request, and then for the answer to be taken.
    pub(super) patience: Duration,
    /// Time for the client to close after that.
    pub(super) linger: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        let (patience, linger) = (Duration::from_secs(10), Duration::from_secs(1));
        Bounds { most: 16, patience, linger }
    }
}

/// What a connection waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Doing {
    /// The client, to close.
    Closing,
    /// The client, to ask.
    Listening,
    /// The client, to take its answer.
    Telling,
}

struct Connection {
    stream: TcpStream,
    doing: Doing,
    /// When it is closed.
    end: Instant,
    /// Of the request, then of the answer.
    bytes: Vec<u8>,
    /// Of the answer that were sent, or of the rest that were read.
    done: usize,
}

/// Serves until `is_over`, at which `bell` becomes readable. `text` makes what `GET /metrics` gives, with its type; `None`:
/// there is nothing any more.
pub(super) fn serve(
    listener: &TcpListener,
    bell: BorrowedFd<'_>,
    is_over: impl Fn() -> bool,
    (content_type, mut text): (&str, impl FnMut() -> Option<String>),
    bounds: Bounds,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let mut connections: Vec<Connection> = Vec::new();
    // Until then no connection is accepted: too many files were open.
    let mut pause: Option<Instant> = None;
    while !is_over() {
        let accepts = pause.is_none();
        let ready = wait(listener, bell, &connections, pause)?;
        let now = Instant::now();
        pause = pause.filter(|until| *until > now);
        let mut ready_of = ready[2..].iter();
        connections.retain_mut(|c| {
            let is_ready = ready_of.next().is_some_and(|r| *r);
            let mut answer = |head: &[u8]| answer(head, content_type, &mut text);
            now < c.end
                && (!is_ready || c.turn(now, &mut answer, bounds).is_ok_and(|goes_on| goes_on))
        });
        if ready[1] && accepts && accept(listener, &mut connections, now, bounds).is_err() {
            pause = Some(now + Duration::from_millis(100));
        }
    }
    Ok(())
}

/// Sleeps until something is ready or over. Says of the bell, the listener and each connection whether it is ready.
fn wait(
    listener: &TcpListener,
    bell: BorrowedFd<'_>,
    connections: &[Connection],
    pause: Option<Instant>,
) -> io::Result<Vec<bool>> {
    let accept = if pause.is_some() { PollFlags::empty() } else { PollFlags::IN };
    let of = |c: &Connection| match c.doing {
        Doing::Telling => PollFlags::OUT,
        _ => PollFlags::IN,
    };
    let mut fds = vec![
        PollFd::from_borrowed_fd(bell, PollFlags::IN),
        PollFd::from_borrowed_fd(listener.as_fd(), accept),
    ];
    fds.extend(connections.iter().map(|c| PollFd::new(&c.stream, of(c))));
    let first = connections.iter().map(|c| c.end).chain(pause).min();
    let left = first.map(|at| at.saturating_duration_since(Instant::now()));
    let left = left.map(|d| Timespec {
        tv_sec: d.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: d.subsec_nanos().into(),
    });
    match poll(&mut fds, left.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(e) => return Err(e.into()),
    }
    Ok(fds.iter().map(|fd| !fd.revents().is_empty()).collect())
}

/// Takes the connections that have come. If all places are taken, disconnects the client that the server has waited for
/// longest.
fn accept(
    listener: &TcpListener,
    connections: &mut Vec<Connection>,
    now: Instant,
    bounds: Bounds,
) -> io::Result<()> {
    // The others have their turn after so many.
    for _ in 0..bounds.most {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
            // The client has gone already.
            Err(e)
                if [ErrorKind::ConnectionAborted, ErrorKind::Interrupted].contains(&e.kind()) =>
            {
                continue;
            }
            Err(e) => return Err(e),
        };
        if stream.set_nonblocking(true).is_err() {
            continue;
        }
        if connections.len() >= bounds.most {
            let longest =
                (0..connections.len()).min_by_key(|i| (connections[*i].doing, connections[*i].end));
            longest.map(|i| connections.remove(i));
        }
        let (doing, end) = (Doing::Listening, now + bounds.patience);
        connections.push(Connection { stream, doing, end, bytes: Vec::new(), done: 0 });
    }
    Ok(())
}

impl Connection {
    /// Reads or writes what goes without waiting. False, or an error: it is to be closed.
    fn turn(
        &mut self,
        now: Instant,
        answer: &mut impl FnMut(&[u8]) -> Option<Vec<u8>>,
        bounds: Bounds,
    ) -> io::Result<bool> {
        let turned = match self.doing {
            Doing::Listening => self.listen(now, answer, bounds),
            Doing::Telling => self.tell(now, bounds),
            Doing::Closing => self.close(),
        };
        match turned {
            Err(e) if [ErrorKind::WouldBlock, ErrorKind::Interrupted].contains(&e.kind()) => {
                Ok(true)
            }
            turned => turned,
        }
    }

    fn listen(
        &mut self,
        now: Instant,
        answer: &mut impl FnMut(&[u8]) -> Option<Vec<u8>>,
        bounds: Bounds,
    ) -> io::Result<bool> {
        let mut piece = [0; 2048];
        let room = (MAX_HEAD - self.bytes.len()).min(piece.len());
        let n = self.stream.read(&mut piece[..room])?;
        if n == 0 {
            return Ok(false);
        }
        self.bytes.extend_from_slice(&piece[..n]);
        let Some(text) = answer(&self.bytes) else { return Ok(true) };
        (self.bytes, self.done) = (text, 0);
        (self.doing, self.end) = (Doing::Telling, now + bounds.patience);
        self.tell(now, bounds)
    }

    fn tell(&mut self, now: Instant, bounds: Bounds) -> io::Result<bool> {
        while self.done < self.bytes.len() {
            self.done += self.stream.write(&self.bytes[self.done..])?;
        }
        (self.bytes, self.done) = (Vec::new(), 0);
        (self.doing, self.end) = (Doing::Closing, now + bounds.linger);
        self.stream.shutdown(Shutdown::Write)?;
        Ok(true)
    }

    /// Closing a connection with bytes that were not read would reset it, and its client might not see the answer.
    fn close(&mut self) -> io::Result<bool> {
        let mut piece = [0; 2048];
        let n = self.stream.read(&mut piece)?;
        self.done += n;
        Ok(n > 0 && self.done <= MAX_REST)
    }
}

/// The answer to a request, once its head is whole.
fn answer(
    head: &[u8],
    content_type: &str,
    text: &mut impl FnMut() -> Option<String>,
) -> Option<Vec<u8>> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    let plain = "text/plain; charset=utf-8";
    let no = |status: &str, why: &str| Some(response(status, plain, "", why, true));
    match request.parse(head) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) if head.len() < MAX_HEAD => return None,
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            return no("431 Request Header Fields Too Large", "the request is too long\n");
        }
        Err(_) => return no("400 Bad Request", "this is no request of HTTP/1.1\n"),
    }
    let path = request.path.unwrap_or_default();
    let path = path.split_once('?').map_or(path, |(path, _)| path);
    let (get, head_only) = (request.method == Some("GET"), request.method == Some("HEAD"));
    if !get && !head_only {
        let allow = "Allow: GET, HEAD\r\n";
        return Some(response("405 Method Not Allowed", plain, allow, "only GET and HEAD\n", true));
    }
    let (status, kind, body) = match path {
        "/metrics" => match text() {
            Some(text) => ("200 OK", content_type, text),
            None => ("503 Service Unavailable", plain, "the server is ending\n".to_owned()),
        },
        _ => ("404 Not Found", plain, "the metrics are at /metrics\n".to_owned()),
    };
    Some(response(status, kind, "", &body, get))
}

fn response(status: &str, content_type: &str, more: &str, body: &str, with_body: bool) -> Vec<u8> {
    let mut all = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n{more}Connection: close\r\n\r\n",
        body.len()
    );
    if with_body {
        all += body;
    }
    all.into_bytes()
}
