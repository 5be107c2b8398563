//! The console's sockets accept every caller; silent connections are closed in favour of new ones.

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::HttpBody;
use axum::extract::Request;
use axum::http::{HeaderValue, header};
use axum::middleware::{self, Next};
use axum::response::Response;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::{TowerToHyperService, TowerToHyperServiceFuture};
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio_io_timeout::TimeoutStream;

use super::connections::{Connections, GRACE, share};

/// Time limit for the head of a request, first or later.
pub const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// A caller that reads nothing of its answer for this long is disconnected.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// Pause after a failed accept (too many open files).
const PAUSE: Duration = Duration::from_millis(10);
/// Length of the kernel's queue of connections to accept.
const BACKLOG: i32 = 4096;
/// Wanted limit of file descriptors, if the hard limit allows.
const DESCRIPTORS: u64 = 4096;
/// File descriptors reserved for other purposes: connections to servers, files, pipes.
const RESERVED: u64 = 256;
/// Listeners that share the remaining descriptors: the page's and the health check's.
const LISTENERS: u64 = 2;

/// A listening socket and the state of its connections.
pub struct Listener {
    tcp: TcpListener,
    connections: Arc<Mutex<Connections>>,
}

impl Listener {
    /// Must be called within the runtime that will serve it.
    ///
    /// # Errors
    /// The runtime cannot watch the socket.
    pub fn new(tcp: std::net::TcpListener) -> io::Result<Self> {
        Ok(Self {
            tcp: TcpListener::from_std(tcp)?,
            connections: Arc::new(Mutex::new(Connections::new(descriptors()))),
        })
    }
}

/// Binds this address and listens with a long queue.
///
/// # Errors
/// The address is taken.
pub fn bind(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let tcp = std::net::TcpListener::bind(address)?;
    rustix::net::listen(&tcp, BACKLOG)?;
    tcp.set_nonblocking(true)?;
    Ok(tcp)
}

/// Raises the soft limit of file descriptors. Returns the number available to one listener's callers.
fn descriptors() -> usize {
    let mut limit = getrlimit(Resource::Nofile);
    let wanted = DESCRIPTORS.min(limit.maximum.unwrap_or(DESCRIPTORS));
    if limit.current.is_some_and(|current| current < wanted) {
        let before = limit.current;
        limit.current = Some(wanted);
        if setrlimit(Resource::Nofile, limit).is_err() {
            limit.current = before;
        }
    }
    let all = limit.current.unwrap_or(DESCRIPTORS).min(DESCRIPTORS);
    ((all - RESERVED.min(all / 2)) / LISTENERS) as usize
}

/// The connection of a request.
#[derive(Clone)]
pub struct Connection {
    number: u64,
    address: IpAddr,
    connections: Arc<Mutex<Connections>>,
}

impl Connection {
    /// The address that the connection's share is counted under.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// Marks the connection as authenticated.
    pub fn admit(&self) {
        lock(&self.connections).admit(self.number, Instant::now());
    }

    /// Counts a wrong token. Returns whether to send an answer.
    pub fn refuse(&self) -> bool {
        lock(&self.connections).refuse(self.number)
    }

    /// Closes the connection without an answer.
    pub fn close(&self) {
        lock(&self.connections).leave(self.number);
    }
}

fn lock(connections: &Mutex<Connections>) -> std::sync::MutexGuard<'_, Connections> {
    connections.lock().unwrap_or_else(|e| e.into_inner())
}

/// Adds the caller to each request of a connection.
struct Introduced {
    router: TowerToHyperService<Router>,
    caller: Connection,
}

impl Service<hyper::Request<Incoming>> for Introduced {
    type Response = Response;
    type Error = Infallible;
    type Future = TowerToHyperServiceFuture<Router, hyper::Request<Incoming>>;

    fn call(&self, mut request: hyper::Request<Incoming>) -> Self::Future {
        request.extensions_mut().insert(self.caller.clone());
        self.router.call(request)
    }
}

/// Records complete requests. Surplus connections are closed after their answer.
async fn attend(request: Request, next: Next) -> Response {
    let Some(caller) = request.extensions().get::<Connection>().cloned() else {
        return next.run(request).await;
    };
    // A request that is still being sent counts as silence.
    if request.body().is_end_stream() {
        lock(&caller.connections).hear(caller.number, Instant::now());
    }
    let mut response = next.run(request).await;
    if lock(&caller.connections).is_surplus(caller.number) {
        let headers = response.headers_mut();
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// Serves all callers, forever. `head`: time limit for the head of a request.
pub async fn serve(listener: Listener, router: Router, head: Duration) {
    serve_within(listener, router, head, READ_TIMEOUT).await;
}

/// `unread`: time limit for a caller that reads nothing of its answer.
async fn serve_within(listener: Listener, router: Router, head: Duration, unread: Duration) {
    let Listener { tcp, connections } = listener;
    let router = TowerToHyperService::new(router.layer(middleware::from_fn(attend)));
    loop {
        let is_crowded = lock(&connections).is_crowded();
        tokio::select! {
            accepted = tcp.accept() => match accepted {
                Ok((stream, from)) => {
                    let _ = stream.set_nodelay(true);
                    enter(stream, from.ip(), &connections, &router, head, unread);
                    // Read the new connection before accepting the next one; otherwise a burst could close it unread.
                    tokio::task::yield_now().await;
                }
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(_) => {
                    lock(&connections).close_silent(Duration::ZERO, Instant::now());
                    tokio::time::sleep(PAUSE).await;
                }
            },
            () = tokio::time::sleep(GRACE / 2), if is_crowded => {
                lock(&connections).settle(Instant::now());
            }
        }
    }
}

fn enter(
    stream: tokio::net::TcpStream,
    from: IpAddr,
    connections: &Arc<Mutex<Connections>>,
    router: &TowerToHyperService<Router>,
    head: Duration,
    unread: Duration,
) {
    let (open, closed) = oneshot::channel();
    let caller = Connection {
        number: lock(connections).enter(from, open, Instant::now()),
        address: share(from),
        connections: Arc::clone(connections),
    };
    let service = Introduced {
        router: router.clone(),
        caller: caller.clone(),
    };
    tokio::spawn(async move {
        let mut stream = TimeoutStream::new(stream);
        stream.set_write_timeout(Some(unread));
        let stream = TokioIo::new(Box::pin(stream));
        let http = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(head)
            .serve_connection(stream, service);
        tokio::select! {
            // Fails if the caller disconnects or does not speak HTTP.
            _ = http => {}
            _ = closed => {}
        }
        caller.close();
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    use axum::body::Body;
    use axum::routing::get;
    use futures_util::stream;
    use std::net::TcpStream;

    use crate::console::connections::MAX_PER_ADDRESS;
    use crate::console::guard::{self, Guard, Names};
    use crate::console::token::Token;

    const SHORT: Duration = Duration::from_millis(100);

    fn start() -> SocketAddr {
        start_within(SHORT).0
    }

    /// A listener and its token. `/slow` takes longer than the time limit for a head, and `/endless` never ends.
    fn start_within(limit: Duration) -> (SocketAddr, String) {
        let slow = async || {
            Body::from_stream(stream::unfold(0, async |number| {
                tokio::time::sleep(SHORT).await;
                (number < 5).then(|| (Ok::<_, io::Error>(format!("line {number}\n")), number + 1))
            }))
        };
        let endless = async || {
            Body::from_stream(stream::repeat_with(|| {
                Ok::<_, io::Error>(vec![b'x'; 1 << 16])
            }))
        };
        let router = Router::new()
            .route("/slow", get(slow))
            .route("/endless", get(endless));
        let guard = Guard::new(Token::random().unwrap(), Names::default());
        let token = guard.token().text().to_owned();
        let secret = Router::new()
            .route("/secret", get(async || "the secret"))
            .route_layer(middleware::from_fn_with_state(
                Arc::new(guard),
                guard::ask_token,
            ));
        let router = router.merge(secret);
        let (sender, address) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let tcp = bind("127.0.0.1:0".parse().unwrap()).unwrap();
                sender.send(tcp.local_addr().unwrap()).unwrap();
                serve_within(Listener::new(tcp).unwrap(), router, limit, limit).await;
            });
        });
        (address.recv().unwrap(), token)
    }

    fn connect(address: SocketAddr, text: &str) -> TcpStream {
        let mut stream = TcpStream::connect(address).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        stream
    }

    /// The status of an answer on a connection that stays open.
    fn status(stream: &mut TcpStream) -> String {
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|count| count > 0) {
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
        let length = head.split_once("content-length: ").map_or(0, |(_, rest)| {
            let (length, _) = rest.split_once('\r').unwrap();
            length.parse().unwrap()
        });
        stream.read_exact(&mut vec![0; length]).unwrap();
        head.split(' ').nth(1).unwrap_or_default().to_owned()
    }

    /// Number of connections that the server keeps open.
    fn count_open(streams: &[TcpStream]) -> usize {
        let open = streams.iter().filter(|open| {
            let mut stream: &TcpStream = open;
            stream.set_nonblocking(true).unwrap();
            let mut buffer = [0; 4096];
            loop {
                match stream.read(&mut buffer) {
                    Ok(0) => return false,
                    Ok(_) => {}
                    Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
                }
            }
        });
        open.count()
    }

    const SECRET: &str = "GET /secret HTTP/1.1\r\nHost: a\r\n";

    #[test]
    fn silent_connections_give_way() {
        let (address, token) = start_within(HEAD_TIMEOUT);
        let with_token = format!("{SECRET}Authorization: Bearer {token}\r\n\r\n");
        let mut holder = connect(address, &with_token);
        assert_eq!(status(&mut holder), "200");
        // Nothing, a partial head, a missing body, and an answer without a further request.
        for text in [
            "",
            "GET / HTTP/1.1\r\nHost: a\r\nX: ",
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nx",
            "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        ] {
            let idle: Vec<TcpStream> = (0..300).map(|_| connect(address, text)).collect();
            let begin = Instant::now();
            let answer = say(address, "GET / HTTP/1.0\r\n\r\n");
            assert!(answer.starts_with("HTTP/1.0 404"), "{text}: {answer}");
            assert!(begin.elapsed() < Duration::from_secs(2), "{text}");
            // Connections above the share are closed.
            let begin = Instant::now();
            while count_open(&idle) > MAX_PER_ADDRESS {
                assert!(begin.elapsed() < HEAD_TIMEOUT / 2, "{text}");
                std::thread::sleep(GRACE);
            }
            let (_, newest) = idle.split_at(idle.len() - MAX_PER_ADDRESS / 2);
            assert!(text.contains("\r\n\r\n") || count_open(newest) == newest.len());
        }
        holder.write_all(with_token.as_bytes()).unwrap();
        assert_eq!(status(&mut holder), "200");
    }

    #[test]
    fn wrong_tokens_are_slowed() {
        let (address, token) = start_within(HEAD_TIMEOUT);
        let wrong = format!("{SECRET}Authorization: Bearer wrong\r\n\r\n");
        let mut stream = connect(address, "");
        let begin = Instant::now();
        for number in 0..11 {
            // The tenth answer is the last one without delay.
            if number == 10 {
                assert!(begin.elapsed() < Duration::from_secs(1));
            }
            stream.write_all(wrong.as_bytes()).unwrap();
            assert_eq!(status(&mut stream), "401");
        }
        assert!(begin.elapsed() >= Duration::from_secs(1));
        // Requests that cannot wait get no answer, and the right token does not wait.
        let more: Vec<TcpStream> = (0..20).map(|_| connect(address, &wrong)).collect();
        let begin = Instant::now();
        let right = format!("{SECRET}Connection: close\r\nAuthorization: Bearer {token}\r\n\r\n");
        assert!(say(address, &right).ends_with("the secret"));
        assert!(begin.elapsed() < Duration::from_secs(1));
        std::thread::sleep(GRACE);
        assert!(count_open(&more) <= 5);
    }

    /// Everything received until the server closes the connection.
    fn say(address: SocketAddr, text: &str) -> String {
        let mut answer = String::new();
        connect(address, text).read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn who_says_nothing_is_shown_out() {
        let address = start();
        assert_eq!(say(address, ""), "");
        assert!(!say(address, "GET / HTTP/1.1\r\nHost: a\r\n").contains("200"));
        // The connection stays open for a further request, but only briefly.
        let answer = say(address, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
    }

    #[test]
    fn who_reads_nothing_is_shown_out() {
        let mut stream = TcpStream::connect(start()).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        write!(stream, "GET /endless HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        std::thread::sleep(SHORT * 10);
        // The rest that the kernel has buffered, and then the end.
        const MUCH: usize = 256 << 20;
        let mut answer = Vec::new();
        let _ = stream.take(MUCH as u64).read_to_end(&mut answer);
        assert!(answer.starts_with(b"HTTP/1.1 200") && answer.len() < MUCH);
    }

    #[test]
    fn an_answer_may_take_its_time() {
        let answer = say(start(), "GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(
            answer.starts_with("HTTP/1.1 200") && answer.contains("line 4"),
            "{answer}"
        );
    }
}
