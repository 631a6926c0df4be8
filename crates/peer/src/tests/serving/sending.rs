//! What is sent on a connection: for as long as somebody takes it, and no more than is wanted.

use super::*;
use crate::transport::Way;

/// However long a round takes on a wire that many share: as long as something leaves, nobody is broken with.
#[tokio::test(start_paused = true)]
async fn an_asker_who_takes_little_at_a_time_gets_all_and_one_who_takes_nothing_is_given_up() {
    let mut fixed = Fixed::default();
    let much = large(&mut fixed, "much", 32);
    let (mut shop, file) = (shop(Arc::new(fixed), None, 64 << 20), tempfile::tempfile().expect("a file"));
    let content = vec![7; much.size as usize];
    file.write_all_at(&content, 0).expect("written");
    let sums = block::sums(&[content.into()]);
    shop.files.insert(much.id(), Arc::new(Kept { file, sums, is_at_hand: true.into() }));
    let serving = begin(Arc::new(shop));
    let mut little = greet(&serving, 1).await;
    ask(&mut little, 1, Run::new(much.clone(), 0..32), Manner::default()).await;
    let frame = HEADER + crate::wire::sums_bytes(BLOCK as usize) + BLOCK as usize;
    let (mut left, mut some) = (32 * frame + HEADER, vec![0; 64 << 10]);
    while left > 0 {
        let next = left.min(some.len());
        tokio::time::sleep(Duration::from_millis(500)).await;
        little.read.read_exact(&mut some[..next]).await.expect("the connection lives");
        left -= next;
    }
    let mut none = greet(&serving, 2).await;
    ask(&mut none, 1, Run::new(much, 0..32), Manner::default()).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let mut rest = Vec::new();
    none.read.read_to_end(&mut rest).await.expect("an end");
    assert!(rest.len() < 32 * frame, "{} bytes came that nobody read", rest.len());
}

#[tokio::test]
async fn the_system_tells_what_the_other_side_of_a_socket_has_not_confirmed() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let near = tokio::net::TcpStream::connect(listener.local_addr().expect("it is bound")).await.expect("connected");
    let (mut far, _) = listener.accept().await.expect("connected");
    let (_read, mut write) = near.into_split();
    assert_eq!(Way::unconfirmed(&write), Some(0));
    let mut sent = 0;
    while let Ok(wrote) = timeout(Duration::from_millis(200), write.write(&[7; 64 << 10])).await {
        sent += wrote.expect("the socket lives");
    }
    let full = Way::unconfirmed(&write).expect("Linux tells");
    assert!(full > 0 && full <= sent as u64);
    let mut some = vec![0; sent];
    far.read_exact(&mut some).await.expect("all of it");
    let emptied = async {
        while Way::unconfirmed(&write) != Some(0) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(20), emptied).await.expect("all is confirmed");
}

#[tokio::test(start_paused = true)]
async fn of_an_answer_that_is_damaged_the_rest_does_not_come() {
    let files = files(false, |file| file.write_all_at(&[0x55, 0xaa], 0).expect("written")).await;
    let (object, content) = files.samples.iter().max_by_key(|(object, _)| object.blocks()).expect("some");
    let blocks = object.blocks().min(64);
    let got = read(&files.owners, Run::new(object.clone(), 0..blocks)).await.expect("blocks");
    assert!(got == content[..got.len()]);
    tokio::time::sleep(Duration::from_secs(5)).await;
    let (sent, wanted) = (files.served.figures().served.get().0, u64::from(blocks));
    assert!(sent < wanted + wanted / 2, "{sent} blocks were sent of {wanted}");
}

#[tokio::test(start_paused = true)]
async fn names_are_read_for_an_asker_as_it_takes_them() {
    let shop = Arc::new(shop(Arc::new(Fixed::default()), None, 1 << 20));
    let serving = begin(shop.clone());
    let mut askers = Vec::new();
    for _ in 0..2 {
        let mut asker = greet(&serving, 1).await;
        for request in 0..50 {
            let payload = [7u128.to_le_bytes().as_slice(), &7u128.to_le_bytes(), &0u64.to_le_bytes()].concat();
            asker.write.write_all(&crate::wire::frame(Word::Piece, request, payload).concat()).await.expect("said");
        }
        askers.push(asker);
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    // The network has taken up to two, each on its way or all but written, and two wait.
    let read = shop.pieces.load(Relaxed);
    assert!(read < 10, "{read} of 100");
    for asker in &mut askers {
        for _ in 0..50 {
            let (header, piece) = hear(asker).await;
            assert_eq!((header.word, piece.len()), (Word::Told, PIECE_BYTES));
        }
    }
    assert_eq!(shop.pieces.load(Relaxed), 100);
}
