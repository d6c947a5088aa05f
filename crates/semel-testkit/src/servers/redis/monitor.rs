//! What a server was told, as the server itself says.

use std::{
    net::Ipv4Addr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::Mutex;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    task::JoinHandle,
};

use super::{super::process::Looking, server::Redis};

/// A connection that hears of every command the server carries out. It ends with the value.
#[derive(Debug)]
pub struct Monitor {
    heard: Arc<Mutex<Vec<String>>>,
    marks: AtomicU64,
    reading: JoinHandle<()>,
}

impl Monitor {
    pub(super) async fn of(port: u16) -> Self {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.expect("the server accepts");
        stream.write_all(b"MONITOR\r\n").await.expect("it reads");
        let heard = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&heard);
        let mut lines = BufReader::new(stream).lines();
        let _ok = lines.next_line().await.expect("it answers");
        #[expect(clippy::disallowed_methods, reason = "it reads beside the test, as long as the value lives")]
        let reading = tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                log.lock().push(line);
            }
        });
        Self { heard, marks: AtomicU64::new(0), reading }
    }

    /// What clients told the server since the last time this was asked, in order: `"evalsha" "…" …`. What scripts do is not
    /// among it.
    ///
    /// # Panics
    /// When the server does not answer, or what was asked of it now is not heard of within a minute.
    pub async fn commands(&self, server: &Redis) -> Vec<String> {
        let mark = format!("monitor-{}", self.marks.fetch_add(1, Ordering::Relaxed));
        server.tell(&["ECHO", &mark]).await;
        let (is_mark, looking) = (|line: &String| line.contains(&mark), Looking::begin());
        // Lines come in the order in which commands were carried out.
        while !self.heard.lock().iter().any(is_mark) {
            assert!(looking.again().await, "the server says nothing of what it was told");
        }
        let heard = std::mem::take(&mut *self.heard.lock());
        let told = heard.iter().take_while(|line| !is_mark(line)).filter(|line| !line.contains(" lua] "));
        told.filter_map(|line| Some(line.split_once("] ")?.1.to_owned())).collect()
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        self.reading.abort();
    }
}
