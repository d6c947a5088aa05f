//! What stays bounded: memory, descriptors, the disk.

use std::{
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::{
    alone,
    client::{Answer, Ask, read},
    gateway::{Gateway, Setup},
    rounds, together,
    upstream::Upstream,
};

/// How many send at once.
const CLIENTS: usize = 16;

/// Sends `n` requests with fresh keys over kept connections.
async fn fresh_keys(gateway: &Gateway, name: &'static str, n: usize) {
    let http = gateway.http;
    together(CLIENTS, move |client| {
        Box::pin(async move {
            let mut stream = TcpStream::connect(http).await.unwrap();
            stream.set_nodelay(true).unwrap();
            for i in 0..n / CLIENTS {
                let ask = Ask::post("/orders").key(&format!("{name}-{client}-{i}"));
                stream.write_all(&ask.bytes()).await.unwrap();
                let answer = read(&mut stream, false).await.unwrap();
                assert_eq!((answer.status, answer.idempotency_status()), (200, "fresh"), "{answer:?}");
            }
        })
    })
    .await;
}

/// Small outcomes once kept the whole read buffer they came in alive: 5 to 9 KB for 60 bytes.
#[tokio::test(flavor = "multi_thread")]
async fn finished_records_take_little_more_than_their_bytes() {
    let _alone = alone().await;
    let upstream = Upstream::start().await;
    let gateway = Setup::new(&upstream.url(), "memory").start();
    fresh_keys(&gateway, "warm", 4_000).await;
    let before = gateway.resident();
    let n = rounds(50_000);
    fresh_keys(&gateway, "kept", n).await;
    let each = gateway.resident().saturating_sub(before) / n as u64;
    // A record's payload is its answer, one line of its head, and the key; more of it is never kept.
    let key = format!("kept-0-{}", n / CLIENTS);
    let answer = Ask::post("/orders").key("one").send(gateway.http).await;
    let payload = (answer.body.len() + "content-type: application/json\r\n".len() + key.len()) as u64;
    assert!(each < 2 * payload + 400, "{each} bytes are resident for each record of {payload}");
}

#[tokio::test(flavor = "multi_thread")]
async fn unguarded_answers_stream_piece_by_piece() {
    let upstream = Upstream::start().await;
    let gateway = Setup::new(&upstream.url(), "memory").start();
    let mut stream = TcpStream::connect(gateway.http).await.unwrap();
    stream.write_all(&Ask::new("GET", "/told/4").body("").bytes()).await.unwrap();
    let mut seen = String::new();
    for n in 1..=4 {
        // The one after it does not exist yet.
        upstream.next_piece();
        while seen.matches("piece").count() < n || !seen.ends_with("\r\n") {
            read_on(&mut stream, &mut seen).await;
        }
    }
    while !seen.ends_with("0\r\n\r\n") {
        read_on(&mut stream, &mut seen).await;
    }
    assert!(seen.starts_with("HTTP/1.1 200"), "{seen}");
}

async fn read_on(stream: &mut TcpStream, seen: &mut String) {
    let mut piece = [0; 4096];
    let more = tokio::time::timeout(Duration::from_secs(30), stream.read(&mut piece)).await;
    let n = more.unwrap_or_else(|_| panic!("nothing more after {seen}")).unwrap();
    assert!(n > 0, "closed: {seen}");
    seen.push_str(&String::from_utf8_lossy(&piece[..n]));
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_leave_in_the_middle_of_answers_leave_no_descriptor_behind() {
    let upstream = Upstream::start().await;
    let idle = "reuse_idle = \"100ms\"\nidle = \"300ms\"\n";
    let gateway = Setup::new(&upstream.url(), "memory").of_upstream(idle).start();
    let http = gateway.http;
    assert_eq!(Ask::new("GET", "/orders").body("").send(http).await.status, 200);
    tokio::time::sleep(Duration::from_millis(800)).await;
    let before = gateway.descriptors();
    for round in 0..rounds(4) {
        together(50, move |i| Box::pin(leave(http, round * 50 + i))).await;
    }
    let mut after = usize::MAX;
    for _ in 0..150 {
        after = gateway.descriptors();
        if after <= before {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(after <= before, "{before} descriptors were open, now {after}");
    assert_eq!(Ask::new("GET", "/orders").body("").send(http).await.status, 200);
}

/// A client with a kept connection that asks, reads some of it all, and goes: before, within or after an answer.
async fn leave(http: std::net::SocketAddr, seed: usize) {
    let mut stream = TcpStream::connect(http).await.unwrap();
    for n in 0..6 {
        // Spread out by a multiplication, the same in every run.
        let chance = (seed * 6 + n).wrapping_mul(2_654_435_761) >> 7;
        let path = ["/big/200000", "/chunked/100000", "/drip/5/5", "/slow/10", "/orders"][chance % 5];
        stream.write_all(&Ask::new("GET", path).body("").bytes()).await.unwrap();
        if chance.is_multiple_of(7) {
            let mut some = vec![0; chance % 5_000 + 1];
            let _ = tokio::time::timeout(Duration::from_millis((chance % 20) as u64), stream.read(&mut some)).await;
            if chance.is_multiple_of(2) {
                let _ = stream.set_zero_linger();
            }
            return;
        }
        assert_eq!(read(&mut stream, false).await.unwrap().status / 100, 2);
    }
}

/// A file system of its own, in memory; unmounted at the end.
struct SmallDisk {
    dir: tempfile::TempDir,
}

impl SmallDisk {
    fn mount(mib: u64) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let size = format!("size={mib}m,mode=0700");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "semel-test"]).arg(dir.path()).status();
        assert!(
            mounted.expect("the command `mount` can be run").success(),
            "mounting a tmpfs failed: this test needs the right to mount (run it as root, with CAP_SYS_ADMIN)"
        );
        Self { dir }
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn ballast(&self) -> PathBuf {
        self.path().join("ballast")
    }

    /// Writes until nothing more goes in.
    fn fill(&self) {
        let mut file = File::create(self.ballast()).unwrap();
        for size in [1 << 20, 4096] {
            while file.write_all(&vec![1; size]).is_ok() {}
        }
    }

    fn clear(&self) {
        fs::remove_file(self.ballast()).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        drop(Command::new("umount").arg(self.dir.path()).status());
    }
}

/// Asks with fresh keys until `wanted` is the answer: the store looks at its disk once a second.
async fn until(gateway: &Gateway, name: &str, wanted: impl Fn(&Answer) -> bool) -> Answer {
    let mut last = None;
    for n in 0..100 {
        let answer = Ask::post("/slow/1").key(&format!("{name}-{n}")).send(gateway.http).await;
        if wanted(&answer) {
            return answer;
        }
        last = Some(answer);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("{name}: still {last:?}: {}", gateway.said());
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_full_disk_running_work_settles_new_keys_are_refused_and_space_heals_it() {
    let disk = SmallDisk::mount(400);
    let upstream = Upstream::start().await;
    let setup = Setup::new(&upstream.url(), "embedded").data(disk.path());
    let gateway = setup.start();
    let http = gateway.http;
    let before = Ask::post("/orders").key("before").send(http).await;
    assert_eq!((before.status, before.idempotency_status()), (200, "fresh"));
    let running = tokio::spawn(async move { Ask::post("/slow/4000").key("running").send(http).await });
    upstream.reached("running").await;
    disk.fill();
    let refused = until(&gateway, "full", |a| a.status == 503).await;
    assert_eq!(refused.problem(), "store-full", "{}: {}", refused.text(), gateway.said());
    assert!(refused.field("retry-after").is_some(), "{refused:?}");
    let answer = running.await.unwrap();
    assert_eq!((answer.status, answer.idempotency_status()), (201, "fresh"), "running work settles: {answer:?}");
    for (key, path, first) in [("running", "/slow/4000", &answer), ("before", "/orders", &before)] {
        let again = Ask::post(path).key(key).send(http).await;
        assert_eq!((again.idempotency_status(), &again.body), ("replayed", &first.body), "{key}: {again:?}");
    }
    assert_eq!(Ask::new("GET", "/orders").body("").send(http).await.status, 200, "what is not guarded passes");
    disk.clear();
    until(&gateway, "healed", |a| a.status == 201).await;
    gateway.kill();
    let gateway = setup.start();
    let again = Ask::post("/slow/4000").key("running").send(gateway.http).await;
    assert_eq!((again.idempotency_status(), &again.body), ("replayed", &answer.body), "and is on disk");
    assert_eq!(upstream.effects("running").len(), 1);
}
