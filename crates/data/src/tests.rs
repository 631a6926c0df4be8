//! What a generated set promises: true formats, the asked sizes, the same bytes again, and nothing half made.
//!
//! Speed is measured elsewhere; readers other than Rust's are tried by hand.

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::sync::Mutex;

use block::Kind;
use tempfile::TempDir;
use zune_jpeg::JpegDecoder;
use zune_jpeg::zune_core::bytestream::ZCursor;

use super::*;

mod formats;
mod hostile;

const THREADS: usize = 2;

fn set() -> Set {
    Set {
        images: ImageSpec { count: 60, classes: 4, mean_bytes: 100_000 },
        volumes: VolumeSpec { count: 2, bytes: 1_000_000 },
        seed: 7,
        ..Set::default()
    }
}

fn scratch() -> TempDir {
    tempfile::tempdir().expect("the machine has room for temporary files")
}

fn made(set: &Set, folder: &Path) -> Manifest {
    generate(set, folder, THREADS, &|_| ()).unwrap()
}

fn contents(folder: &Path, manifest: &Manifest) -> Vec<Vec<u8>> {
    manifest.files.iter().map(|entry| fs::read(folder.join(&entry.path)).unwrap()).collect()
}

#[test]
fn every_image_decodes_without_complaint_in_its_full_size() {
    for (mean_bytes, count) in [(100_000, 60), (4 << 10, 10), (1 << 20, 3)] {
        let folder = scratch();
        let manifest = made(
            &Set { images: ImageSpec { count, classes: 2, mean_bytes }, seed: 3, ..Set::default() },
            folder.path(),
        );
        for file in contents(folder.path(), &manifest) {
            let mut decoder = JpegDecoder::new(ZCursor::new(&file));
            let pixels = decoder.decode().unwrap();
            let (width, height) = decoder.dimensions().unwrap();
            assert_eq!(pixels.len(), width * height * 3);
            // A decoder that lost its way at a restart fills the rest with one grey.
            let last_row = &pixels[pixels.len() - width * 3..];
            assert!(last_row.iter().collect::<HashSet<_>>().len() > 20, "{mean_bytes}");
        }
    }
}

#[test]
fn images_have_the_asked_sizes_and_are_all_different() {
    let folder = scratch();
    let images = ImageSpec { count: 400, classes: 10, mean_bytes: 100_000 };
    let manifest = made(&Set { images, seed: 1, ..Set::default() }, folder.path());
    let mean = manifest.bytes() / 400;
    assert!((97_000..103_000).contains(&mean), "{mean}");
    let (least, most) =
        (manifest.files.iter().map(|file| file.bytes).min(), manifest.files.iter().map(|file| file.bytes).max());
    assert!((72_000..79_000).contains(&least.unwrap()), "{least:?}");
    assert!((121_000..128_000).contains(&most.unwrap()), "{most:?}");
    let decoded = |file: &Vec<u8>| block::crc64::of(&JpegDecoder::new(ZCursor::new(file)).decode().unwrap());
    let pictures: HashSet<u64> = contents(folder.path(), &manifest).iter().map(decoded).collect();
    assert_eq!(pictures.len(), 400, "the pixels differ, not only a comment");
    let checksums: HashSet<u64> = manifest.files.iter().map(|file| file.crc64).collect();
    assert_eq!(checksums.len(), 400);
}

#[test]
fn a_volume_is_two_stored_arrays_in_a_zip_file() {
    let folder = scratch();
    let manifest = made(&set(), folder.path());
    let entry = manifest.find("volumes/case_00001.npz").unwrap();
    assert!(entry.bytes.abs_diff(1_000_000) < 30_000, "{}", entry.bytes);
    let file = fs::read(folder.path().join(&entry.path)).unwrap();
    assert_eq!(file.len() as u64, entry.bytes);
    let short = |at: usize| usize::from(u16::from_le_bytes([file[at], file[at + 1]]));
    let long = |at: usize| short(at) + (short(at + 2) << 16);
    let mut central = long(file.len() - 6);
    for name in [b"x.npy", b"y.npy"] {
        assert_eq!(&file[central..central + 4], b"PK\x01\x02");
        let (crc32, size, local) = (long(central + 16), long(central + 24), long(central + 42));
        assert_eq!(&file[local..local + 4], b"PK\x03\x04");
        assert_eq!(&file[local + 30..local + 35], name);
        let member = &file[local + 35..local + 35 + size];
        assert!(member.starts_with(b"\x93NUMPY\x01\x00"));
        assert_eq!(crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32IsoHdlc, member) as usize, crc32);
        assert_eq!(long(local + 14), crc32);
        central += 46 + name.len();
    }
    assert_eq!(central, file.len() - 22);
}

#[test]
fn the_mask_marks_the_bright_voxels() {
    let folder = scratch();
    let manifest = made(&set(), folder.path());
    let file = fs::read(folder.path().join(&manifest.find("volumes/case_00000.npz").unwrap().path)).unwrap();
    let voxels = (file.len() - 500) / 5 / 256 * 256;
    let start = |head: &[u8]| file.windows(head.len()).position(|at| at == head).unwrap();
    let x = &file[start(b"x.npy\x93") + 5 + 128..][..voxels * 4];
    let y = &file[start(b"y.npy\x93") + 5 + 128..][..voxels];
    let mean = |inside: u8| {
        let picked = x.chunks_exact(4).zip(y).filter(|(_, mask)| **mask == inside);
        let values: Vec<f32> = picked.map(|(voxel, _)| f32::from_le_bytes(voxel.try_into().unwrap())).collect();
        assert!(values.len() > 500, "{inside}: {}", values.len());
        values.iter().sum::<f32>() / values.len() as f32
    };
    assert!(mean(0).abs() < 0.02, "{}", mean(0));
    assert!((mean(1) - 1.0).abs() < 0.05, "{}", mean(1));
}

#[test]
fn the_same_seed_gives_the_same_bytes_for_ever() {
    let (one, other) = (scratch(), scratch());
    let manifest = made(&set(), one.path());
    assert_eq!(generate(&set(), other.path(), 1, &|_| ()).unwrap(), manifest);
    assert_eq!(contents(one.path(), &manifest), contents(other.path(), &manifest));
    // Data sets lie on disks and in buckets: whoever changes these raises `FORMAT` in `manifest`.
    let checksum = |path| format!("{:016x}", manifest.find(path).unwrap().crc64);
    assert_eq!(checksum("train/n00000001/n00000001_000001.JPEG"), "c79bdb7fa01cfbd3");
    assert_eq!(checksum("volumes/case_00000.npz"), "080eb8591d927a73");
}

#[test]
fn another_seed_gives_other_bytes() {
    let (one, other) = (scratch(), scratch());
    let first = made(&set(), one.path());
    let second = made(&Set { seed: 8, ..set() }, other.path());
    assert!(
        first.files.iter().zip(&second.files).all(|(left, right)| left.path == right.path && left.crc64 != right.crc64)
    );
}

#[test]
fn every_byte_can_be_checked() {
    let folder = scratch();
    made(&set(), folder.path());
    let manifest = Manifest::open(folder.path()).unwrap();
    for entry in &manifest.files {
        entry.check_file(folder.path()).unwrap();
    }
    let entry = &manifest.files[5];
    let mut bytes = fs::read(folder.path().join(&entry.path)).unwrap();
    entry.check(&bytes).unwrap();
    bytes[70_000] ^= 1;
    assert_eq!(entry.check(&bytes).unwrap_err().kind, Kind::Corrupt);
    assert_eq!(entry.check(&bytes[1..]).unwrap_err().kind, Kind::Corrupt);
}

#[test]
fn an_interrupted_run_goes_on_where_it_stopped() {
    let folder = scratch();
    let manifest = made(&set(), folder.path());
    // As a killed run leaves it: a claim without files, some files missing, one torn by hand.
    let claim = fs::read_to_string(folder.path().join(MANIFEST)).unwrap();
    let claim = format!("{}\"files\":[]}}", claim.split("\"files\"").next().unwrap());
    fs::write(folder.path().join(MANIFEST), claim).unwrap();
    assert_eq!(Manifest::open(folder.path()).unwrap_err().kind, Kind::Missing);
    let path = |number: usize| folder.path().join(&manifest.files[number].path);
    fs::remove_file(path(3)).unwrap();
    fs::write(path(4), b"torn").unwrap();
    let kept = fs::metadata(path(5)).unwrap().modified().unwrap();
    assert_eq!(made(&set(), folder.path()), manifest);
    assert_eq!(fs::metadata(path(5)).unwrap().modified().unwrap(), kept, "finished files are left alone");
    for entry in &manifest.files {
        entry.check_file(folder.path()).unwrap();
    }
}

#[test]
fn a_finished_set_is_recognised_and_a_lost_file_made_again() {
    let folder = scratch();
    let manifest = made(&set(), folder.path());
    let lost = folder.path().join(&manifest.files[0].path);
    fs::remove_file(&lost).unwrap();
    assert_eq!(made(&set(), folder.path()), manifest);
    assert!(lost.exists());
    assert_eq!(made(&set(), folder.path()), manifest);
    let names: HashSet<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, [MANIFEST, IMAGES, VOLUMES].map(Into::into).into(), "no draft is left");
}

#[test]
fn progress_ends_at_the_whole() {
    let folder = scratch();
    let seen = Mutex::new(Vec::new());
    let manifest = generate(&set(), folder.path(), 1, &|progress| seen.lock().unwrap().push(progress)).unwrap();
    let seen = seen.into_inner().unwrap();
    assert!(seen.is_sorted_by_key(|progress| (progress.bytes, progress.files)));
    let whole = Progress { bytes: manifest.bytes(), bytes_total: manifest.bytes(), files: 62, files_total: 62 };
    assert_eq!(seen.last(), Some(&whole));
}

#[test]
fn a_missing_folder_is_said_with_a_cure() {
    let folder = scratch();
    let error = generate(&set(), &folder.path().join("none"), THREADS, &|_| ()).unwrap_err();
    assert_eq!(error.kind, Kind::Missing);
    assert!(error.hint.starts_with("create it: mkdir -p /"), "{error}");
}

#[test]
fn a_set_larger_than_the_disk_is_refused_before_anything_is_written() {
    let folder = scratch();
    let volumes = VolumeSpec { count: 1_000_000, bytes: 4_000_000_000 };
    let error = generate(&Set { volumes, seed: 1, ..Set::default() }, folder.path(), THREADS, &|_| ()).unwrap_err();
    assert_eq!(error.kind, Kind::Full, "{error}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_set_that_no_empty_disk_would_hold_is_refused_before_its_files_are_planned() {
    let folder = scratch();
    let of = |count| Set::shaped(Shape::of(&workload::shipped("unet3d").unwrap().files, count), 1);
    let error = of(u64::MAX / 2).fits(&folder.path().join("not/yet/made")).unwrap_err();
    assert!(error.kind == Kind::Full && error.hint.contains("fewer files"), "{error}");
    of(1).fits(folder.path()).unwrap();
}

#[test]
fn files_of_others_are_never_overwritten() {
    let folder = scratch();
    fs::create_dir(folder.path().join(IMAGES)).unwrap();
    assert_eq!(generate(&set(), folder.path(), THREADS, &|_| ()).unwrap_err().kind, Kind::Invalid);
    fs::remove_dir(folder.path().join(IMAGES)).unwrap();
    made(&set(), folder.path());
    let error = generate(&Set { seed: 8, ..set() }, folder.path(), THREADS, &|_| ()).unwrap_err();
    assert_eq!(error.what, "another data set is in the folder");
}

#[test]
fn two_runs_do_not_share_a_folder() {
    let folder = scratch();
    let refused = Mutex::new(None);
    let again = |_| {
        let mut refused = refused.lock().unwrap();
        if refused.is_none() {
            *refused = Some(generate(&set(), folder.path(), 1, &|_| ()).unwrap_err().what);
        }
    };
    generate(&set(), folder.path(), 1, &again).unwrap();
    assert_eq!(refused.into_inner().unwrap().as_deref(), Some("another run is making data in the folder"));
}

#[test]
fn nonsense_is_refused_with_what_would_make_sense() {
    let image = |count, classes, mean_bytes| Set {
        images: ImageSpec { count, classes, mean_bytes },
        seed: 1,
        ..Set::default()
    };
    let volume = |bytes| Set { volumes: VolumeSpec { count: 1, bytes }, seed: 1, ..Set::default() };
    for set in [
        image(0, 1, 100_000),
        image(3, 0, 100_000),
        image(3, 4, 100_000),
        image(3, 1, 10),
        image(3, 1, 1 << 30),
        volume(0),
        volume(1 << 33),
    ] {
        let error = generate(&set, Path::new("/"), THREADS, &|_| ()).unwrap_err();
        assert_eq!(error.kind, Kind::Invalid, "{set:?}");
        assert!(!error.hint.is_empty());
    }
}
