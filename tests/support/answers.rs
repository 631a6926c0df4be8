//! A server of HTTP that answers as a test says, on a free port of this machine, until the test's process ends.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// What it was asked so far: heads of requests.
pub struct Answers {
    pub address: String,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Answers {
    /// `answer`: from the head of a request to a status with headers, each in a line, and a body.
    pub fn start(answer: impl Fn(&str) -> (String, String) + Send + Sync + 'static) -> Answers {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let (asked, answer) = (Arc::<Mutex<Vec<String>>>::default(), Arc::new(answer));
        let noted = asked.clone();
        std::thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                let (noted, answer) = (noted.clone(), answer.clone());
                std::thread::spawn(move || serve(socket, &noted, &*answer));
            }
        });
        Answers { address, asked }
    }

    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().expect("heads").clone()
    }
}

fn serve(mut socket: TcpStream, asked: &Mutex<Vec<String>>, answer: &dyn Fn(&str) -> (String, String)) {
    let lines = BufReader::new(&socket).lines().map_while(Result::ok).take_while(|line| !line.is_empty());
    let head = lines.collect::<Vec<_>>().join("\n");
    let (above, body) = answer(&head);
    asked.lock().expect("heads").push(head);
    let text = format!("HTTP/1.1 {above}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len());
    let _ = socket.write_all(text.as_bytes());
}
