//! An HTTP server that gives two texts to every client. One thread handles all connections without blocking: each has
//! a time limit, and the number of connections and the length of a request are limited. It holds disks only while it
//! makes the text.
//!
//! The server is a loop around poll(2), because existing small HTTP servers start a thread for each connection and set no
//! time limits. `httparse` reads the requests.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// Longest head of a request, in bytes.
pub(super) const MAX_HEAD: usize = 8 << 10;
/// The page needs no script and nothing from elsewhere, so a browser need not allow it any. No other page may show it in
/// a frame.
const LOCKED: &str = "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'\r\n\
                      X-Content-Type-Options: nosniff\r\n";
/// Most lines of a head.
const MAX_HEADERS: usize = 64;
/// Most bytes that are read after a request. Without reading them, the client would see a reset in place of the
/// answer.
const MAX_REST: usize = 64 << 10;

/// The limits of connections.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// Most connections at a time.
    pub(super) most: usize,
    /// Time for a whole request, and then for the client to read the answer.
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

/// The event that a connection waits for. Clients are disconnected in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum HttpPhase {
    /// The client closes.
    Closing,
    /// The client sends its request.
    Listening,
    /// The client reads its answer.
    Sending,
}

struct Connection {
    stream: TcpStream,
    phase: HttpPhase,
    /// The time at which it is closed.
    end: Instant,
    /// The bytes of the request, then of the answer.
    bytes: Vec<u8>,
    /// Bytes of the answer that were sent, then bytes of the rest that were read.
    done: usize,
}

/// A text that clients may ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HttpText {
    /// `GET /`.
    Page,
    /// `GET /metrics`.
    Metrics,
}

/// Serves until `is_over`, which must make `bell` readable. `text` makes a text, and returns it with its type; `None`: the
/// server is ending.
pub(super) fn serve(
    listener: &TcpListener,
    bell: BorrowedFd<'_>,
    is_over: impl Fn() -> bool,
    mut text: impl FnMut(HttpText) -> Option<(&'static str, String)>,
    bounds: Bounds,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let mut connections: Vec<Connection> = Vec::new();
    // No connection is accepted until then, because too many files were open.
    let mut pause: Option<Instant> = None;
    while !is_over() {
        let accepts = pause.is_none();
        let ready = wait(listener, bell, &connections, pause)?;
        let now = Instant::now();
        pause = pause.filter(|until| *until > now);
        let mut ready_of = ready[2..].iter();
        connections.retain_mut(|c| {
            let is_ready = ready_of.next().is_some_and(|r| *r);
            let mut answer = |head: &[u8]| answer(head, &mut text);
            now < c.end
                && (!is_ready || c.turn(now, &mut answer, bounds).is_ok_and(|goes_on| goes_on))
        });
        if ready[1] && accepts && accept(listener, &mut connections, now, bounds).is_err() {
            pause = Some(now + Duration::from_millis(100));
        }
    }
    Ok(())
}

/// Sleeps until something is ready or times out. Returns whether the bell, the listener and each connection are
/// ready.
fn wait(
    listener: &TcpListener,
    bell: BorrowedFd<'_>,
    connections: &[Connection],
    pause: Option<Instant>,
) -> io::Result<Vec<bool>> {
    let accept = if pause.is_some() { PollFlags::empty() } else { PollFlags::IN };
    let of = |c: &Connection| match c.phase {
        HttpPhase::Sending => PollFlags::OUT,
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

/// Accepts waiting connections. If all places are taken, disconnects the client that the server has waited for
/// longest.
fn accept(
    listener: &TcpListener,
    connections: &mut Vec<Connection>,
    now: Instant,
    bounds: Bounds,
) -> io::Result<()> {
    // After this many, the existing connections have their turn.
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
                (0..connections.len()).min_by_key(|i| (connections[*i].phase, connections[*i].end));
            longest.map(|i| connections.remove(i));
        }
        let (phase, end) = (HttpPhase::Listening, now + bounds.patience);
        connections.push(Connection { stream, phase, end, bytes: Vec::new(), done: 0 });
    }
    Ok(())
}

impl Connection {
    /// Reads or writes as much as possible without waiting. False or an error: the connection must be closed.
    fn turn(
        &mut self,
        now: Instant,
        answer: &mut impl FnMut(&[u8]) -> Option<Vec<u8>>,
        bounds: Bounds,
    ) -> io::Result<bool> {
        let turned = match self.phase {
            HttpPhase::Listening => self.listen(now, answer, bounds),
            HttpPhase::Sending => self.tell(now, bounds),
            HttpPhase::Closing => self.close(),
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
        (self.phase, self.end) = (HttpPhase::Sending, now + bounds.patience);
        self.tell(now, bounds)
    }

    fn tell(&mut self, now: Instant, bounds: Bounds) -> io::Result<bool> {
        while self.done < self.bytes.len() {
            self.done += self.stream.write(&self.bytes[self.done..])?;
        }
        (self.bytes, self.done) = (Vec::new(), 0);
        (self.phase, self.end) = (HttpPhase::Closing, now + bounds.linger);
        self.stream.shutdown(Shutdown::Write)?;
        Ok(true)
    }

    /// Reads the rest of a request. Closing a connection with unread bytes would reset it, and could lose the answer.
    fn close(&mut self) -> io::Result<bool> {
        let mut piece = [0; 2048];
        let n = self.stream.read(&mut piece)?;
        self.done += n;
        Ok(n > 0 && self.done <= MAX_REST)
    }
}

/// The answer to a request, once its head is complete.
fn answer(
    head: &[u8],
    text: &mut impl FnMut(HttpText) -> Option<(&'static str, String)>,
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
    let wanted = match path {
        "/" => Some(HttpText::Page),
        "/metrics" => Some(HttpText::Metrics),
        _ => None,
    };
    let (status, kind, body) = match wanted.map(text) {
        Some(Some((kind, text))) => ("200 OK", kind, text),
        Some(None) => ("503 Service Unavailable", plain, "the server is ending\n".to_owned()),
        None => ("404 Not Found", plain, "the metrics are at /metrics\n".to_owned()),
    };
    Some(response(status, kind, LOCKED, &body, get))
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::task::Wake;
    use std::thread::JoinHandle;
    use zoneplug_host::WakeFd;

    struct Server {
        address: SocketAddr,
        bell: Arc<WakeFd>,
        over: Arc<AtomicBool>,
        /// Number of texts that were made.
        made: Arc<AtomicUsize>,
        thread: Option<JoinHandle<()>>,
    }

    fn server(bounds: Bounds, text: &'static str) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, bell) = (listener.local_addr().unwrap(), WakeFd::new().unwrap());
        let (over, made) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (of_thread, is_over, makes) = (bell.clone(), over.clone(), made.clone());
        let body = move || {
            let texts = move |wanted| {
                makes.fetch_add(1, Ordering::SeqCst);
                let (kind, n) = match wanted {
                    HttpText::Page => ("text/page", 3),
                    HttpText::Metrics => ("text/x", 200_000),
                };
                Some((kind, text.repeat(n))).filter(|(_, text)| !text.is_empty())
            };
            let is_over = || is_over.load(Ordering::SeqCst);
            serve(&listener, of_thread.as_fd(), is_over, texts, bounds).unwrap();
        };
        Server { address, bell, over, made, thread: Some(std::thread::spawn(body)) }
    }

    impl Server {
        fn connect(&self) -> TcpStream {
            let stream = TcpStream::connect(self.address).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            stream
        }

        /// The head of the answer to these bytes, and the length of its body.
        fn ask(&self, request: &[u8]) -> (String, usize) {
            let mut stream = self.connect();
            stream.write_all(request).unwrap();
            answer_of(&mut stream)
        }
    }

    impl Drop for Server {
        fn drop(&mut self) {
            self.over.store(true, Ordering::SeqCst);
            self.bell.clone().wake();
            self.thread.take().unwrap().join().unwrap();
        }
    }

    fn answer_of(stream: &mut TcpStream) -> (String, usize) {
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        let text = String::from_utf8(all).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        (head.to_owned(), body.len())
    }

    const GET: &[u8] = b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n";

    #[test]
    fn requests_are_answered_as_http_says() {
        let server = server(Bounds::default(), "x");
        let (head, len) = server.ask(GET);
        assert!(
            head.starts_with(
                "HTTP/1.1 200 OK\r\nContent-Type: text/x\r\nContent-Length: 200000\r\n"
            ),
            "{head}"
        );
        assert_eq!(len, 200_000);
        assert!(head.contains("Connection: close"), "{head}");
        let starts = |request: &[u8], status: &str| {
            let (head, _) = server.ask(request);
            assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{head}");
        };
        starts(b"GET /metrics?name=x HTTP/1.0\r\n\r\n", "200");
        starts(b"GET /page HTTP/1.1\r\n\r\n", "404");
        starts(b"GET /metricsx HTTP/1.1\r\n\r\n", "404");
        starts(b"POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", "405");
        starts(b"\x16\x03\x01\x02\x00\x01\x00\x01", "400");
        starts(b"GET /metrics HTTP/9.9\r\n\r\n", "400");
        let (head, len) = server.ask(b"GET / HTTP/1.1\r\n\r\n");
        assert!(head.contains("Content-Type: text/page\r\n") && len == 3, "{head}");
        assert!(head.contains("\r\nContent-Security-Policy: default-src 'none'; "), "{head}");
        let made = server.made.load(Ordering::SeqCst);
        let (head, len) = server.ask(b"HEAD /metrics HTTP/1.1\r\n\r\n");
        assert!(head.contains("Content-Length: 200000") && len == 0, "{head}");
        assert_eq!((made, server.made.load(Ordering::SeqCst)), (3, 4));
    }

    /// A request may arrive byte by byte.
    #[test]
    fn a_request_may_come_in_pieces() {
        let server = server(Bounds::default(), "x");
        let mut stream = server.connect();
        for byte in GET {
            stream.write_all(&[*byte]).unwrap();
        }
        assert_eq!(answer_of(&mut stream).1, 200_000);
    }

    #[test]
    fn long_heads_are_refused() {
        let server = server(Bounds::default(), "x");
        let long = format!("GET /metrics HTTP/1.1\r\nX: {}", "y".repeat(MAX_HEAD));
        let many = format!("GET /metrics HTTP/1.1\r\n{}\r\n", "X: y\r\n".repeat(MAX_HEADERS + 1));
        for request in [long, many, "G".repeat(10 * MAX_HEAD)] {
            let (head, _) = server.ask(request.as_bytes());
            assert!(head.starts_with("HTTP/1.1 431") || head.starts_with("HTTP/1.1 400"), "{head}");
        }
        assert_eq!(server.made.load(Ordering::SeqCst), 0);
    }

    /// The time limit covers all bytes of a request together, and also the reading of the answer.
    #[test]
    fn slow_clients_have_a_limit_as_a_whole() {
        let patience = Duration::from_millis(300);
        let server = server(Bounds { patience, ..Bounds::default() }, "0123456789");
        let mut reader = server.connect();
        reader.write_all(GET).unwrap();
        let (mut slow, start) = (server.connect(), Instant::now());
        while slow.write_all(b"G").is_ok() {
            assert!(start.elapsed() < Duration::from_secs(10), "it is listened to for ever");
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(start.elapsed() >= patience);
        // The first client has had its time too, and has not got all of the 2 MB, part of which is in the kernel's
        // buffers.
        let mut all = Vec::new();
        let _ = reader.read_to_end(&mut all);
        assert!(!all.is_empty() && start.elapsed() < Duration::from_secs(10));
        assert_eq!(server.ask(GET).1, 2_000_000, "others are served");
    }

    /// A silent client gives its place to a new one.
    #[test]
    fn many_silent_clients_keep_none_out() {
        let server = server(Bounds { most: 4, ..Bounds::default() }, "x");
        let mut silent: Vec<TcpStream> = (0..40).map(|_| server.connect()).collect();
        for _ in 0..8 {
            assert_eq!(server.ask(GET).1, 200_000);
        }
        // The first client has lost its place, and sees the end.
        assert_eq!(silent[0].read(&mut [0; 1]).unwrap_or(0), 0);
        let mut last = silent.pop().unwrap();
        last.write_all(GET).unwrap();
        assert_eq!(answer_of(&mut last).1, 200_000, "the last still has its place");
    }

    /// Dropping the server waits for its thread, but not for clients in any state.
    #[test]
    fn the_end_waits_for_no_client() {
        let server = server(Bounds::default(), "0123456789");
        let silent = server.connect();
        let (mut half, mut whole) = (server.connect(), server.connect());
        half.write_all(b"GET /met").unwrap();
        whole.write_all(GET).unwrap();
        while server.made.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        let start = Instant::now();
        drop(server);
        assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
        drop((silent, half, whole));
    }

    #[test]
    fn a_server_that_is_ending_says_so() {
        let server = server(Bounds::default(), "");
        assert!(server.ask(GET).0.starts_with("HTTP/1.1 503"));
    }
}
