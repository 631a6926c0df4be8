//! What may stand where a cache file should be.

use super::trust::large;
use super::*;

#[tokio::test]
async fn a_pipe_in_the_place_of_a_file_is_not_waited_for_and_gives_way() {
    let folder = tempfile::tempdir().expect("a folder");
    let (store, objects) = set();
    let store = Arc::new(store);
    let disk = disk(&store, folder.path(), 1);
    for (object, bytes) in &objects {
        read(&disk, object).await.expect("bytes");
        drop(complete(&disk, object).await);
        let file = path(folder.path(), object);
        std::fs::remove_file(&file).expect("removed");
        rustix::fs::mkfifoat(rustix::fs::CWD, &file, rustix::fs::Mode::RUSR).expect("made");
        assert!(matches!(disk.find(object), Standing::Absent), "a pipe is no file");
        assert!(read(&disk, object).await.expect("bytes") == *bytes);
        complete(&disk, object).await;
    }
}

#[tokio::test]
async fn a_folder_in_the_place_of_a_file_gives_way() {
    let folder = tempfile::tempdir().expect("a folder");
    let (store, object, bytes) = large(2);
    let store2 = store.clone();
    // Nobody looks for strays then, who might take the file that comes for the folder that was there.
    std::fs::write(folder.path().join("clean"), b"").expect("marked");
    let disk = disk(&store, folder.path(), 1);
    let place = Residency { id: object.id(), number: 1 }.path(&folder.path().join("objects"), &object);
    std::fs::create_dir_all(place.join("inside")).expect("made");
    assert!(read(&disk, &object).await.expect("bytes") == bytes);
    assert!(matches!(disk.settled(&object, Door::default()).await, Standing::Complete(_)));
    let Standing::Complete(whole) = disk.find(&object) else { panic!("complete") };
    drop(whole);
    let file = path(folder.path(), &object);
    std::fs::remove_file(&file).expect("removed");
    std::fs::create_dir(&file).expect("made");
    assert!(matches!(disk.find(&object), Standing::Absent), "a folder is no file");
    assert!(read(&disk, &object).await.expect("bytes") == bytes);
    assert!(matches!(disk.settled(&object, Door::default()).await, Standing::Complete(_)));
    assert_eq!(store2.blocks.load(Relaxed), 16);
}
