//! One connection: two pumps and what they know of each other.

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpStream,
        tcp::{ReadHalf, WriteHalf},
    },
    sync::watch,
    time::{Instant, sleep_until},
};

use super::{
    Shared, Way, Weather,
    lens::{Lens, Piece},
    reset,
    rule::{Fate, Then},
};

/// How much may be on its way in one direction before the reader waits.
const ON_ITS_WAY: usize = 1 << 20;

/// What both pumps of a connection have to know.
struct Talk {
    lens: Lens,
    /// Requests the client has sent whole, and those the server has answered whole.
    asked: u64,
    answered: u64,
    /// By the number of the request.
    fates: BTreeMap<u64, Fate>,
}

/// Why a pump stops.
enum Stop {
    /// The peer has said all.
    End,
    /// The connection is to be reset.
    Reset,
    /// Nothing passes any more.
    Silence,
}

impl From<Then> for Stop {
    fn from(then: Then) -> Self {
        match then {
            Then::Close => Self::Reset,
            Then::Silence => Self::Silence,
        }
    }
}

pub(super) async fn serve(mut client: TcpStream, shared: Arc<Shared>) {
    let mut weather = shared.weather.subscribe();
    let mine = weather.borrow().generation;
    tokio::select! {
        biased;
        // The sender lives as long as a connection does.
        _ = weather.wait_for(|w| w.generation != mine) => {}
        () = talk(&mut client, &shared) => {}
    }
    reset(&client);
}

/// Until both have said all, or until it is to be reset.
async fn talk(client: &mut TcpStream, shared: &Shared) {
    let mut weather = shared.weather.subscribe();
    drop(weather.wait_for(|w| !w.is_silent(Way::There)).await);
    let address = *shared.server.lock();
    let Ok(mut server) = TcpStream::connect(address).await else { return };
    // Without it small messages wait for each other.
    let _slow = (client.set_nodelay(true), server.set_nodelay(true));
    let talk = Mutex::new(Talk { lens: Lens::new(shared.speaks), asked: 0, answered: 0, fates: BTreeMap::new() });
    let silence = watch::Sender::new(false);
    let (client_says, to_client) = client.split();
    let (server_says, to_server) = server.split();
    let pump = |way, from, to| Pump {
        way,
        from,
        to,
        shared,
        talk: &talk,
        silence: &silence,
        weather: shared.weather.subscribe(),
        queue: VecDeque::new(),
        queued: 0,
    };
    let (mut there, mut back) = (pump(Way::There, client_says, to_server), pump(Way::Back, server_says, to_client));
    // An error of one side resets the other: nothing half open is left.
    let _first_to_fail = tokio::try_join!(there.run(), back.run());
}

/// What was read, and what it waits for.
struct OnItsWay {
    due: Instant,
    /// Until the proxy was told to let go once more.
    held_since: Option<u64>,
    bytes: Vec<u8>,
}

struct Pump<'a> {
    way: Way,
    from: ReadHalf<'a>,
    to: WriteHalf<'a>,
    shared: &'a Shared,
    talk: &'a Mutex<Talk>,
    /// True when a rule has made this connection silent.
    silence: &'a watch::Sender<bool>,
    weather: watch::Receiver<Weather>,
    queue: VecDeque<OnItsWay>,
    queued: usize,
}

impl Pump<'_> {
    /// Ends well when its side has said all, and badly when the connection is to be reset.
    async fn run(&mut self) -> io::Result<()> {
        let mut silenced = self.silence.subscribe();
        let stop = tokio::select! {
            biased;
            stop = self.pass() => stop?,
            _ = silenced.wait_for(|s| *s) => Stop::Silence,
        };
        match stop {
            Stop::End => self.to.shutdown().await,
            Stop::Reset => Err(io::ErrorKind::ConnectionReset.into()),
            Stop::Silence => {
                self.silence.send_replace(true);
                self.until_the_peer_leaves().await
            }
        }
    }

    /// What it still says is thrown away.
    async fn until_the_peer_leaves(&mut self) -> io::Result<()> {
        let mut thrown_away = [0; 4096];
        while self.from.read(&mut thrown_away).await? > 0 {}
        Err(io::ErrorKind::ConnectionReset.into())
    }

    async fn pass(&mut self) -> io::Result<Stop> {
        let mut buffer = vec![0; 64 * 1024];
        let mut stop = None;
        loop {
            let now = *self.weather.borrow_and_update();
            let silent = now.is_silent(self.way);
            if self.queue.is_empty()
                && let Some(stop) = stop
            {
                return Ok(stop);
            }
            let goes_on = |next: &&OnItsWay| next.held_since.is_none_or(|held| held < now.let_go);
            let due = self.queue.front().filter(goes_on).map(|next| next.due);
            tokio::select! {
                biased;
                _ = self.weather.changed() => {}
                () = until(due), if due.is_some() && !silent => {
                    let OnItsWay { bytes, .. } = self.queue.pop_front().expect("somebody was due");
                    self.queued -= bytes.len();
                    self.to.write_all(&bytes).await?;
                }
                read = self.from.read(&mut buffer), if stop.is_none() && !silent && self.queued < ON_ITS_WAY => {
                    let n = read?;
                    stop = if n == 0 { Some(Stop::End) } else { self.heard(&buffer[..n], now) };
                }
            }
        }
    }

    /// Puts what was read on its way.
    fn heard(&mut self, bytes: &[u8], weather: Weather) -> Option<Stop> {
        let cut = self.shared.take(self.way, bytes.len());
        let bytes = &bytes[..cut.unwrap_or(bytes.len())];
        let mut talk = self.talk.lock();
        let mut pieces = Vec::new();
        match self.way {
            Way::There => talk.lens.client(bytes, &mut pieces),
            Way::Back => talk.lens.server(bytes, &mut pieces),
        }
        // What is cut goes on as torn as it is.
        if cut.is_some() {
            pieces.push(Piece::opaque(talk.lens.rest(self.way)));
        }
        for mut piece in pieces {
            let came = match self.way {
                Way::There => self.shared.asks(&mut talk, &mut piece),
                Way::Back => {
                    self.shared.renamed.lock().of(&mut piece.bytes);
                    talk.answers(&piece)
                }
            };
            let (mut later, mut held_since) = (Duration::ZERO, None);
            match came {
                Came::Lost(Lost::This(then)) => return Some(then.into()),
                Came::Lost(Lost::ThisAndMore) => continue,
                Came::Late(by) => later = by,
                Came::Held => held_since = Some(weather.let_go),
                Came::Well => {}
            }
            self.queued += piece.bytes.len();
            let due = Instant::now() + weather.delay(self.way) + later;
            self.queue.push_back(OnItsWay { due, held_since, bytes: piece.bytes });
        }
        cut.map(|_| Stop::Reset)
    }
}

/// What becomes of a piece.
enum Came {
    Well,
    Late(Duration),
    Held,
    Lost(Lost),
}

/// A piece that does not go on.
enum Lost {
    /// And the connection ends with it.
    This(Then),
    /// More of the same answer is to come.
    ThisAndMore,
}

impl Shared {
    fn asks(&self, talk: &mut Talk, piece: &mut Piece) -> Came {
        let mut came = Came::Well;
        for rewording in &*self.rewordings.lock() {
            rewording.of(self.speaks, piece);
        }
        if let Some(request) = piece.request() {
            self.requests.fetch_add(1, Ordering::SeqCst);
            match self.rules.lock().iter_mut().find_map(|rule| rule.judge(&request)) {
                Some(Fate::LosesRequest(then)) => came = Came::Lost(Lost::This(then)),
                Some(Fate::DelaysRequest(by)) => came = Came::Late(by),
                Some(Fate::HoldsRequest) => came = Came::Held,
                Some(fate @ (Fate::LosesReply(_) | Fate::DelaysReply(_))) => {
                    talk.fates.insert(talk.asked, fate);
                }
                None => {}
            }
        }
        talk.asked += u64::from(piece.ends);
        came
    }
}

impl Talk {
    fn answers(&mut self, piece: &Piece) -> Came {
        if !self.lens.numbers_replies() {
            self.answered = self.asked.saturating_sub(1);
        }
        // Without numbers all that comes is taken for the answer to what was chosen.
        let chosen = self.fates.first_key_value().filter(|(number, _)| **number <= self.answered);
        let fate = if piece.is_push { None } else { chosen.map(|(number, fate)| (*number, *fate)) };
        if piece.ends {
            self.answered += 1;
            if let Some((number, _)) = fate {
                self.fates.remove(&number);
            }
        }
        match fate {
            Some((_, Fate::LosesReply(then))) if piece.ends => Came::Lost(Lost::This(then)),
            Some((_, Fate::LosesReply(_))) => Came::Lost(Lost::ThisAndMore),
            Some((_, Fate::DelaysReply(by))) => Came::Late(by),
            _ => Came::Well,
        }
    }
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => std::future::pending().await,
    }
}
