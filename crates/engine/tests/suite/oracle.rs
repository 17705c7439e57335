//! What several clients, each with keys of its own, may find after what happened to them.

use std::collections::BTreeMap;
use std::sync::Arc;

/// The pairs of one client.
pub(crate) type State = BTreeMap<Vec<u8>, Arc<[u8]>>;

/// Puts and deletes, in order.
pub(crate) type Batch = Vec<(Vec<u8>, Option<Arc<[u8]>>)>;

/// What all keys of client `number` begin with.
pub(crate) fn prefix(number: usize) -> Vec<u8> {
    format!("client{number}/").into_bytes()
}

/// Every batch of a client puts its number here, so that no two states are equal.
pub(crate) fn count_key(number: usize) -> Vec<u8> {
    [prefix(number), b"#count".to_vec()].concat()
}

/// Of all pairs those of one client.
fn own(found: &State, number: usize) -> State {
    let prefix = prefix(number);
    let own = found.range(prefix.clone()..).take_while(|(key, _)| key.starts_with(&prefix));
    own.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// A state that a batch leads to.
#[derive(Clone)]
struct Known {
    state: Arc<State>,
    /// Of every client, the acknowledged states when the batch was begun: what is before it in the log.
    before: Arc<[usize]>,
    /// The batch, counted over all clients.
    batch: u64,
    /// It failed; it may be there, unless one that was begun later is.
    failed: bool,
}

#[derive(Clone)]
struct Client {
    /// The states after each acknowledged batch, the empty one first.
    acknowledged: Vec<Known>,
    /// Of these, the newest known to be durable.
    synced: usize,
    /// Batches that are under way or failed: at most one of them may be there, after the newest acknowledged one.
    open: Vec<Known>,
}

/// What is known of every client. A clone is what was known at a moment.
#[derive(Clone)]
pub(crate) struct Oracle {
    clients: Vec<Client>,
    batches: u64,
}

/// A batch under way.
pub(crate) struct Begun {
    client: usize,
    batch: u64,
    before: Arc<[usize]>,
}

/// Which acknowledged batches may be gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MayLose {
    Nothing,
    /// The last ones of all clients together, as far as they were not synced.
    Unsynced,
}

impl Oracle {
    pub(crate) fn new(clients: usize) -> Oracle {
        let before: Arc<[usize]> = vec![0; clients].into();
        let empty = Known { state: Arc::default(), before, batch: 0, failed: false };
        let client = Client { acknowledged: vec![empty], synced: 0, open: Vec::new() };
        Oracle { clients: vec![client; clients], batches: 0 }
    }

    /// Acknowledged states of every client: what a sync that begins now makes durable.
    pub(crate) fn marks(&self) -> Arc<[usize]> {
        self.clients.iter().map(|client| client.acknowledged.len()).collect()
    }

    /// What was acknowledged at `marks` is durable.
    pub(crate) fn synced(&mut self, marks: &[usize]) {
        for (client, &mark) in self.clients.iter_mut().zip(marks) {
            client.synced = client.synced.max(mark - 1);
        }
    }

    /// What reads of a client's keys must show.
    pub(crate) fn current(&self, client: usize) -> Arc<State> {
        self.clients[client].acknowledged.last().map(|known| known.state.clone()).unwrap_or_default()
    }

    pub(crate) fn begin(&mut self, client: usize, batch: &Batch) -> Begun {
        let before = self.marks();
        self.batches += 1;
        let mut state = State::clone(&self.current(client));
        for (key, value) in batch {
            match value {
                Some(value) => state.insert(key.clone(), value.clone()),
                None => state.remove(key),
            };
        }
        let known = Known { state: Arc::new(state), before: before.clone(), batch: self.batches, failed: false };
        self.clients[client].open.push(known);
        Begun { client, batch: self.batches, before }
    }

    pub(crate) fn acknowledge(&mut self, begun: &Begun, sync: bool) {
        let client = &mut self.clients[begun.client];
        let place = client.open.iter().position(|known| known.batch == begun.batch).expect("a batch under way");
        let known = client.open.remove(place);
        client.acknowledged.push(known);
        if sync {
            client.synced = client.acknowledged.len() - 1;
            self.synced(&begun.before);
        }
        // Of one client batches follow each other: those that failed were begun before this one.
        self.clients[begun.client].open.retain(|known| !known.failed);
    }

    pub(crate) fn fail(&mut self, begun: &Begun) {
        let open = &mut self.clients[begun.client].open;
        open.iter_mut().filter(|known| known.batch == begun.batch).for_each(|known| known.failed = true);
    }

    /// Which states of the clients `found` is made of.
    fn places(&self, found: &State, floors: &[usize]) -> Result<Vec<(Option<usize>, &Known)>, String> {
        let mut places = Vec::new();
        let mut seen = 0;
        for (number, (client, &floor)) in self.clients.iter().zip(floors).enumerate() {
            let own = own(found, number);
            seen += own.len();
            let is_found = |known: &Known| *known.state == own;
            let of_open = client.open.iter().find(|known| is_found(known)).map(|known| (None, known));
            let acknowledged = || client.acknowledged.iter().enumerate().rev();
            let of_acknowledged = || {
                acknowledged()
                    .find(|(place, known)| *place >= floor && is_found(known))
                    .map(|(place, known)| (Some(place), known))
            };
            let Some(place) = of_open.or_else(of_acknowledged) else {
                let count = |state: &State| {
                    state.get(&count_key(number)).map(|count| String::from_utf8_lossy(count).into_owned())
                };
                let count_of = |known: Option<&Known>| known.and_then(|known| count(&known.state)).unwrap_or_default();
                let older = acknowledged().find(|(_, known)| is_found(known)).map(|(place, _)| place);
                let what = older.map_or("in no state it ever had".to_owned(), |place| format!("in its state {place}"));
                return Err(format!(
                    "client {number} is {what}, with batch {:?}: acknowledged is batch {}, its state {}; allowed are \
                     those from {floor} (batch {}) on, synced is {}, open are {:?}",
                    count(found),
                    count_of(client.acknowledged.last()),
                    client.acknowledged.len() - 1,
                    count_of(client.acknowledged.get(floor)),
                    client.synced,
                    client.open.iter().map(|known| count_of(Some(known))).collect::<Vec<_>>()
                ));
            };
            places.push(place);
        }
        if seen != found.len() {
            return Err(format!("{} keys are nobody's", found.len() - seen));
        }
        Ok(places)
    }

    /// `found` is a state that all clients together can be in, with at least what `floors` say.
    fn verify_from(&self, found: &State, floors: &[usize]) -> Result<(), String> {
        let places = self.places(found, floors)?;
        for (number, (_, known)) in places.iter().enumerate() {
            for (other, (place, _)) in places.iter().enumerate() {
                let needed = known.before[other];
                if other != number && place.is_some_and(|place| place + 1 < needed) {
                    return Err(format!(
                        "client {number} is in a state that came after state {} of client {other}, which is in {place:?}",
                        needed - 1
                    ));
                }
            }
        }
        Ok(())
    }

    /// `found` is all there is, and may be.
    pub(crate) fn verify(&self, found: &State, may_lose: MayLose) -> Result<(), String> {
        let floor = |client: &Client| match may_lose {
            MayLose::Nothing => client.acknowledged.len() - 1,
            MayLose::Unsynced => client.synced,
        };
        self.verify_from(found, &self.clients.iter().map(floor).collect::<Vec<_>>())
    }

    /// The same of a copy that was begun at `marks` and is done now.
    pub(crate) fn verify_copy(&self, found: &State, marks: &[usize]) -> Result<(), String> {
        self.verify_from(found, &marks.iter().map(|mark| mark - 1).collect::<Vec<_>>())
    }

    /// An opening showed `found`, which was verified: that is what there is from now on, durably.
    pub(crate) fn settle(&mut self, found: &State) {
        let before: Arc<[usize]> = vec![0; self.clients.len()].into();
        for (number, client) in self.clients.iter_mut().enumerate() {
            let state = Arc::new(own(found, number));
            client.open.clear();
            client.acknowledged.push(Known { state, before: before.clone(), batch: 0, failed: false });
            client.synced = client.acknowledged.len() - 1;
        }
    }
}
