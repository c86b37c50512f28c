// Plays one turn from Rust, by FFI and without a crate: play_turn [ADDRESS [INSTRUCTION]]
// rustc play_turn.rs -L FOLDER_OF_THE_LIBRARY -l animegamer   (the static library needs -l stdc++ as well)
use std::ffi::{c_char, c_int, c_void, CStr, CString};
use std::{env, mem, ptr, thread, time::Duration};

/// The structs of animegamer.h that this program needs. The library fills no more of ag_options than the size it is given.
#[repr(C)]
struct Options {
    size: usize,
    address: *const c_char,
    timeout_s: f64,
    pixel_format: c_int,
    codec: c_int,
    flip: c_int,
    jpeg_quality: c_int,
}
#[repr(C)]
struct Fault {
    kind: c_int,
    code: *const c_char,
    text: *const c_char,
    what_to_do: *const c_char,
}
#[repr(C)]
#[derive(Clone, Copy)]
struct Frame {
    index: i64,
    count: i64,
    width: c_int,
    height: c_int,
    stride: c_int,
}
/// ag_event up to its union, which begins where this ends.
#[repr(C)]
struct Event {
    kind: c_int,
    game: u32,
    request: u64,
    turn: i64,
    seq: i64,
    buffer: *mut c_void,
    buffer_bytes: usize,
    of: [u64; 0],
}
const OPENED: c_int = 3;
const FRAME: c_int = 7;
const DONE: c_int = 10;
const ERROR: c_int = 11;
const BUFFER_BYTES: usize = 4 << 20;

extern "C" {
    fn ag_options_init_sized(options: *mut Options, size: usize);
    fn ag_client_new(options: *const Options) -> *mut c_void;
    fn ag_client_free(client: *mut c_void);
    fn ag_last_error() -> *const Fault;
    fn ag_give_buffer(client: *mut c_void, data: *mut c_void, bytes: usize) -> c_int;
    fn ag_open(client: *mut c_void, seed: i64, history_turns: c_int, request: *mut u64) -> c_int;
    fn ag_turn(client: *mut c_void, game: u32, text: *const c_char, id: *const c_char, deadline_s: f64, request: *mut u64) -> c_int;
    fn ag_poll(client: *mut c_void) -> *const Event;
}

unsafe fn fail(fault: *const Fault) -> ! {
    let [text, to_do] = [(*fault).text, (*fault).what_to_do].map(|words| CStr::from_ptr(words).to_string_lossy());
    eprintln!("error: {text}; {to_do}");
    std::process::exit(1)
}

fn main() {
    let argument = |n, default: &str| CString::new(env::args().nth(n).unwrap_or(default.into())).unwrap();
    let address = argument(1, "tcp://127.0.0.1:5570");
    let instruction = argument(2, "Mirel waves gently in the city by day.");
    let mut buffers = vec![vec![0u8; BUFFER_BYTES]; 4]; // outlives the client
    unsafe {
        let mut options: Options = mem::zeroed();
        ag_options_init_sized(&mut options, mem::size_of::<Options>());
        options.address = address.as_ptr();
        let client = ag_client_new(&options);
        if client.is_null() {
            fail(ag_last_error());
        }
        for buffer in &mut buffers {
            ag_give_buffer(client, buffer.as_mut_ptr().cast(), BUFFER_BYTES);
        }
        ag_open(client, -1, -1, ptr::null_mut());
        loop {
            let event = match ag_poll(client).as_ref() {
                Some(event) => event,
                None => {
                    thread::sleep(Duration::from_millis(16)); // a game draws here
                    continue;
                }
            };
            let of = event.of.as_ptr();
            match event.kind {
                OPENED => {
                    ag_turn(client, event.game, instruction.as_ptr(), ptr::null(), 0.0, ptr::null_mut());
                }
                FRAME => {
                    let frame = *of.cast::<Frame>(); // its pixels are at event.buffer
                    println!("picture {} of {}: {} x {}", frame.index + 1, frame.count, frame.width, frame.height);
                    ag_give_buffer(client, event.buffer, BUFFER_BYTES);
                }
                DONE => break println!("turn {} is done", event.turn),
                ERROR => fail(of.cast()),
                _ => {}
            }
        }
        ag_client_free(client);
    }
}
