//! What is answered to a request: blocks as they come, words, or who is to be asked instead.

use super::portion::{Origin, Taken};
use super::{For, Parts, Room};
use crate::placement::Verdict;
use crate::unkept::{FOR_ALL, Loan, Turn};
use crate::wire::{self, Brought, Failure, Header, Manner, Wish, Word};
use block::{Address, Block, Blocks, Object, Run, Stripe};
use bytes::Bytes;
use futures_util::{FutureExt, StreamExt};
use std::sync::Arc;

/// What is written next. It holds on to its block, and with it to a share of a budget, until it was written.
pub struct Frame {
    pub bytes: Vec<Bytes>,
    _held: (Option<Block>, Taken),
}

impl Frame {
    pub fn of(word: Word, request: u32, payload: Vec<u8>) -> Frame {
        Frame::piece(word, request, payload, Taken::default())
    }

    /// Words that take some memory.
    pub fn piece(word: Word, request: u32, payload: Vec<u8>, taken: Taken) -> Frame {
        Frame { bytes: wire::frame(word, request, payload), _held: (None, taken) }
    }

    fn block(request: u32, block: Block, taken: Taken) -> Frame {
        Frame { bytes: wire::block_frame(request, &block), _held: (Some(block), taken) }
    }
}

/// The last frame of an answer.
type Last = (Word, Vec<u8>);

/// All that is answered to a request.
pub async fn answer(parts: &Parts, header: Header, wish: Wish) {
    let request = header.request;
    let (word, payload) = match header.word {
        Word::Fetch => fetch(parts, request, wish).await,
        Word::Held => {
            let _turn = parts.portion.held().await;
            let first = Address { object: wish.run.object.clone(), index: wish.run.blocks.start };
            match parts.lines.keeper(&first) {
                // It was this node's, and another one keeps it.
                Some(keeper) if parts.giver.room(&first, For::Nobody) != Room::Here => {
                    (Word::Elsewhere, keeper.to_le_bytes().into())
                }
                _ => give(parts, request, (wish.run, None), |run| parts.giver.held(run)).await,
            }
        }
        Word::Bring => bring(parts, wish).await,
        _ => sum(parts, &wish.run.object).await,
    };
    let _ = parts.frames.send(Frame::of(word, request, payload)).await;
}

/// Give what this node has or keeps, and what nobody keeps and several read; of what else it has no room for, say who is to be
/// asked.
async fn fetch(parts: &Parts, request: u32, mut wish: Wish) -> Last {
    match wish.manner.lent {
        Some(FOR_ALL) => {
            // Nobody keeps it, its owner neither.
            let run = Run { is_copy: true, ..wish.run };
            return give(parts, request, of_store(run), |run| parts.giver.shared(run)).await;
        }
        Some(ticket) => return lend(parts, request, wish.run, ticket).await,
        None => {}
    }
    loop {
        let until = match place(parts, &wish, true) {
            Place::Here => return give(parts, request, of_store(wish.run), |run| parts.giver.fetch(run)).await,
            Place::Elsewhere(last) => return last,
            Place::Shared(until) => until,
        };
        let part = wish.run.part(wish.run.blocks.start..until);
        let last = give(parts, request, of_store(part), |run| parts.giver.shared(run)).await;
        if last.0 != Word::Done || until == wish.run.blocks.end {
            return last;
        }
        let manner = Manner { refused: None, ..wish.manner };
        wish = Wish { run: wish.run.part(until..wish.run.blocks.end), manner };
    }
}

/// Bring what this node keeps; of what it has no room for, say who is to.
async fn bring(parts: &Parts, wish: Wish) -> Last {
    if !wish.manner.is_wrong
        && let Place::Elsewhere(last) = place(parts, &wish, false)
    {
        return last;
    }
    let address = Address { object: wish.run.object.clone(), index: wish.run.blocks.start };
    match parts.giver.bring(address, wish.manner) {
        None => (Word::NotMine, Vec::new()),
        Some(brought) => match brought.await {
            Ok(brought) if wish.manner.is_wrong => (Word::Told, brought.encode()),
            // Others took the room that there was.
            Ok(Brought::Unkept) if wish.manner.for_owner => (Word::NotHeld, Vec::new()),
            Ok(Brought::Unkept) => {
                let address = Address { object: wish.run.object, index: wish.run.blocks.start };
                match parts.lines.verdict(&address, wish.manner.refused, false) {
                    Verdict::Yours => (Word::Told, Brought::Unkept.encode()),
                    Verdict::Elsewhere(member) => (Word::Elsewhere, member.to_le_bytes().into()),
                }
            }
            Ok(brought) => (Word::Told, brought.encode()),
            Err(error) => (Word::Failed, Failure::encode(&error)),
        },
    }
}

/// Where what is asked for is to be had.
enum Place {
    Here,
    /// Nobody keeps it and several read it: here, up to this block.
    Shared(u32),
    Elsewhere(Last),
}

/// `has_memory`: the asker will have it in memory for a while.
fn place(parts: &Parts, wish: &Wish, has_memory: bool) -> Place {
    let address = Address { object: wish.run.object.clone(), index: wish.run.blocks.start };
    let asker = match (has_memory, wish.manner.for_owner) {
        (false, _) => For::Nobody,
        (true, true) => For::Owner,
        (true, false) => For::Reader,
    };
    let (room, Manner { for_owner, refused, .. }) = (parts.giver.room(&address, asker), wish.manner);
    match room {
        // The owner knows whom it named.
        room if for_owner && room.keeps() => return Place::Here,
        room if room.takes(|| parts.lines.is_kept(&address, refused)) => {
            parts.lines.stands_in(&Stripe::of(&address));
            return Place::Here;
        }
        _ if for_owner => return Place::Elsewhere((Word::NotHeld, Vec::new())),
        _ => {}
    }
    Place::Elsewhere(match parts.lines.verdict(&address, refused, room == Room::Wanted) {
        Verdict::Yours if !has_memory => (Word::Yours, wire::encode_loan(Loan::none(wish.run.blocks.end))),
        Verdict::Yours => match parts.lines.turn(&wish.run, parts.from, refused) {
            Turn::Given(until) => return Place::Shared(until),
            Turn::Lent(loan) => (Word::Yours, wire::encode_loan(loan)),
        },
        Verdict::Elsewhere(member) => (Word::Elsewhere, member.to_le_bytes().into()),
    })
}

async fn sum(parts: &Parts, object: &Arc<Object>) -> Last {
    match parts.giver.checksum(object) {
        None => (Word::NotMine, Vec::new()),
        Some(asked) => match asked.await {
            Ok(sum) => (Word::Told, wire::encode_sum(sum)),
            Err(error) => (Word::Failed, Failure::encode(&error)),
        },
    }
}

/// A run that may have to be fetched.
fn of_store(run: Run) -> (Run, Origin) {
    let store = run.object.store.clone();
    (run, Some(store))
}

/// The blocks of a run as they come, of so many at a time as the asker may have on their way.
async fn give(parts: &Parts, request: u32, (run, origin): (Run, Origin), ask: impl Fn(Run) -> Option<Blocks>) -> Last {
    let mut next = run.blocks.start;
    while next < run.blocks.end {
        let rest = run.part(next..run.blocks.end);
        let room = parts.portion.given(&origin, rest.addresses().map(|address| address.len())).await;
        next += room.len() as u32;
        let Some(mut blocks) = ask(run.part(rest.blocks.start..next)) else { return (Word::NotMine, Vec::new()) };
        // To the end of the stream, so that the tiers below finish what they keep.
        let mut room = room.into_iter();
        while let Some(block) = blocks.next().await {
            let block = match block {
                Ok(block) => block,
                Err(error) => return (Word::Failed, Failure::encode(&error)),
            };
            if !send(parts, request, block, room.next().unwrap_or_default()).await {
                break;
            }
        }
    }
    (Word::Done, Vec::new())
}

/// The blocks of a run from readers' memory. While as many are on their way to the asker as may be, none is held on to: it is
/// looked for again. Nor is room, while a block is waited for: others would wait for it who are waited for.
async fn lend(parts: &Parts, request: u32, run: Run, ticket: u64) -> Last {
    let (mut next, mut room) = (run.blocks.start, None);
    'again: loop {
        let lent = parts.giver.lent(run.part(next..run.blocks.end), ticket);
        let Some(mut blocks) = lent else { return (Word::NotMine, Vec::new()) };
        while next < run.blocks.end {
            let got = match blocks.next().now_or_never() {
                Some(got) => got,
                None => {
                    room = None;
                    blocks.next().await
                }
            };
            let Some(Ok(block)) = got else { return (Word::NotHeld, Vec::new()) };
            let Some(taken) = room.take().or_else(|| parts.portion.try_lend(block.len())) else {
                let length = block.len();
                drop((block, blocks));
                room = Some(parts.portion.lend(length).await);
                continue 'again;
            };
            next += 1;
            if !send(parts, request, block, taken).await {
                break;
            }
        }
        return (Word::Done, Vec::new());
    }
}

/// False if nobody hears it any more.
async fn send(parts: &Parts, request: u32, block: Block, taken: Taken) -> bool {
    parts.lines.figures().served.add(block.len());
    parts.frames.send(Frame::block(request, block, taken)).await.is_ok()
}
