//! What a batch tells observers.

use super::*;

#[test]
fn a_batch_tells_for_which_writable_pages_it_will_flush() {
    let (bench, a) = Bench::new(2).used();
    let (mut batch, mut inner) =
        (UnmapBatch::new(bench.platform.host()), UnmapBatch::new(bench.platform.host()));
    let told = Arc::new(std::sync::Mutex::new(Vec::<(Event, [u64; 4])>::new()));
    let tell = told.clone();
    *bench.platform.machine.watcher.lock() = Some(Box::new(move |_, event, args| {
        if matches!(event, Event::TlbUnmapOwed | Event::TlbUnmapPaid) {
            tell.lock().unwrap().push((event, args));
        }
    }));
    bench.note(&mut batch, page(a, 3, false));
    assert_eq!(*told.lock().unwrap(), []);
    bench.note(&mut batch, Cleared { pages: 4, ..page(a, 4, true) });
    bench.note(&mut inner, page(a, 9, true));
    bench.settle(&mut inner);
    bench.settle(&mut batch);
    let told = told.lock().unwrap().clone();
    let [(first, owed), (_, by_inner), (second, paid), (_, all_paid)] = told[..] else { panic!("{told:?}") };
    assert_eq!((first, second), (Event::TlbUnmapOwed, Event::TlbUnmapPaid));
    let space = u64::from(a.0);
    assert_eq!((owed[1..].to_vec(), by_inner[1..].to_vec()), (vec![space, 7, 4], vec![space, 7, 1]));
    assert_ne!(owed[0], by_inner[0]);
    assert_eq!((paid[0], all_paid[0]), (by_inner[0], owed[0]));
}
