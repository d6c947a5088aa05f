//! A proxy that changes what passes: one request per connection, which is enough for whoever opens one for each.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// Changes a request (head and body as text); what it returns is sent on, once for each element, the last answer counts.
pub(crate) type Meddle = fn(&str) -> String;

/// What a proxy does with an answer with 503.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum At503 {
    Pass,
    SendAgain,
    OwnPage,
}

pub(crate) struct Meddler {
    pub(crate) address: SocketAddr,
    _task: JoinSet<()>,
}

impl Meddler {
    pub(crate) async fn before(behind: SocketAddr, request: Meddle, answer: Meddle, at_503: At503) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut streams = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                streams.spawn(pass(stream, behind, request, answer, at_503));
            }
        });
        Self { address, _task: task }
    }
}

async fn pass(mut client: TcpStream, behind: SocketAddr, request: Meddle, answer: Meddle, at_503: At503) {
    let Some(asked) = message(&mut client).await else { return };
    let asked = request(&asked);
    let mut said = exchange(behind, &asked).await;
    if said.starts_with("HTTP/1.1 503") {
        said = match at_503 {
            At503::Pass => said,
            At503::SendAgain => exchange(behind, &asked).await,
            At503::OwnPage => "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\n\r\nsoon".to_owned(),
        };
    }
    _ = client.write_all(answer(&said).as_bytes()).await;
}

async fn exchange(behind: SocketAddr, asked: &str) -> String {
    let mut stream = TcpStream::connect(behind).await.expect("the gateway is there");
    stream.write_all(asked.as_bytes()).await.expect("it reads");
    message(&mut stream).await.expect("it answers")
}

/// One message with a `Content-Length`.
async fn message(stream: &mut TcpStream) -> Option<String> {
    let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
            });
            if body.len() >= length.unwrap_or(0) {
                return Some(text);
            }
        }
        match stream.read(&mut piece).await {
            Ok(read) if read > 0 => bytes.extend_from_slice(&piece[..read]),
            _ => return None,
        }
    }
}
