//! What the CPU backend refuses: it is the last to look before kernels write through raw pointers.

use base::DType;
use engine::backend::{Scratch, Step};
use engine::{Backend, BufferId, View};
use graph::Meta;
use graph::ops::{Add, Concat, SumTokens};
use velatura_cpu::Cpu;

fn view(buffer: BufferId, offset: u64, shape: [usize; 3]) -> View {
    View { buffer, offset, meta: Meta::new(shape, DType::F32) }
}

fn add(inputs: [View; 2], output: View) -> Step {
    let scratch = Scratch { buffer: output.buffer, offset: 0, bytes: 0 };
    Step { op: Add.into(), inputs: inputs.into(), outputs: vec![output], scratch }
}

fn refused(cpu: &mut Cpu, step: &Step) -> String {
    format!("{:#}", cpu.run(step).expect_err("a step that must be refused"))
}

#[test]
fn a_step_outside_of_its_buffer_is_refused() {
    let mut cpu = Cpu::with_threads(1).unwrap();
    let buffer = cpu.allocate(256).unwrap();
    let at = |offset| view(buffer, offset, [1, 1, 16]);
    assert!(refused(&mut cpu, &add([at(0), at(64)], at(196))).contains("leave buffer"));
    assert!(refused(&mut cpu, &add([at(u64::MAX - 3), at(64)], at(128))).contains("leave buffer"));
    assert!(refused(&mut cpu, &add([at(0), at(64)], view(BufferId(9), 0, [1, 1, 16]))).contains("no buffer 9"));
    cpu.free(buffer);
    assert!(refused(&mut cpu, &add([at(0), at(64)], at(128))).contains("no buffer"));
}

#[test]
fn a_step_at_an_odd_byte_is_refused() {
    let mut cpu = Cpu::with_threads(1).unwrap();
    let buffer = cpu.allocate(256).unwrap();
    let at = |offset| view(buffer, offset, [1, 1, 16]);
    assert!(refused(&mut cpu, &add([at(2), at(68)], at(132))).contains("not aligned"));
}

#[test]
fn an_output_may_take_over_an_input_but_not_overlap_one() {
    let mut cpu = Cpu::with_threads(1).unwrap();
    let buffer = cpu.allocate(1024).unwrap();
    let at = |offset| view(buffer, offset, [1, 1, 16]);
    cpu.write(buffer, 0, &[1.5f32.to_le_bytes(); 32].concat()).unwrap();
    cpu.run(&add([at(0), at(64)], at(64))).unwrap();
    let mut sum = [0; 4];
    cpu.read(buffer, 124, &mut sum).unwrap();
    assert_eq!(f32::from_le_bytes(sum), 3.0);
    assert!(refused(&mut cpu, &add([at(0), at(64)], at(32))).contains("output 0 overlaps input 0"));
    // Concat never works in place.
    let concat = Step { op: Concat.into(), outputs: vec![view(buffer, 0, [1, 1, 32])], ..add([at(0), at(256)], at(512)) };
    assert!(refused(&mut cpu, &concat).contains("overlaps"));
}

#[test]
fn too_little_scratch_is_refused() {
    let mut cpu = Cpu::with_threads(1).unwrap();
    let buffer = cpu.allocate(1 << 20).unwrap();
    let (x, y) = (view(buffer, 0, [1, 1000, 16]), View { buffer, offset: 64_000, meta: Meta::new([1, 16], DType::F32) });
    let needed = cpu.scratch_bytes(&SumTokens.into(), &[&x.meta], &[&y.meta]);
    let step = |bytes| Step {
        op: SumTokens.into(),
        inputs: vec![x.clone()],
        outputs: vec![y.clone()],
        scratch: Scratch { buffer, offset: 65_536, bytes },
    };
    assert!(needed > 0 && cpu.run(&step(needed)).is_ok());
    assert!(refused(&mut cpu, &step(needed - 64)).contains("scratch"));
}

#[test]
fn buffers_start_zeroed_and_are_counted() {
    let mut cpu = Cpu::with_threads(1).unwrap();
    let (first, second) = (cpu.allocate(100).unwrap(), cpu.allocate(28).unwrap());
    assert_eq!(cpu.allocated_bytes(), 128);
    cpu.write(first, 0, &[7; 100]).unwrap();
    cpu.clear(first, 10, 20).unwrap();
    let mut bytes = [1; 31];
    cpu.read(first, 0, &mut bytes).unwrap();
    assert_eq!((bytes[9], bytes[10], bytes[29], bytes[30]), (7, 0, 0, 7));
    assert!(cpu.write(first, 99, &[1, 2]).is_err() && cpu.read(second, 28, &mut [0]).is_err() && cpu.clear(second, 0, 29).is_err());
    cpu.free(first);
    assert_eq!(cpu.allocated_bytes(), 28);
    let again = cpu.allocate(100).unwrap();
    cpu.read(again, 0, &mut bytes).unwrap();
    assert_eq!((again, bytes), (first, [0; 31]));
    assert!(cpu.allocate(1 << 60).is_err());
}
