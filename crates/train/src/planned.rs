//! A run's programs with their memory, planned once: what is printed is what then runs.

use crate::memory::MemoryPlan;
use crate::metrics::resident_bytes;
use crate::prepare::Prepared;
use crate::recompute::{self, Forward, Question, Report};
use crate::run_programs::train_name;
use crate::step::{Form, Programs};
use anyhow::{Result, bail};
use base::human;
use config::Checkpointing;
use engine::{Backend, Program};
use graph::{Recompute, differentiate};

/// The programs of the training session, and which one trains which form.
pub struct Planned {
    pub programs: Vec<Program>,
    pub index: Programs,
    pub memory: MemoryPlan,
}

/// What planning works on.
struct Planner<'a> {
    run: &'a Prepared,
    backend: &'a dyn Backend,
    forwards: Vec<Forward>,
    frozen: Vec<(Form, Program)>,
    samples: Vec<Program>,
    encoders: Vec<Program>,
}

impl Planned {
    /// Within `memory.budget`, if there is one; an error says what would fit.
    pub fn new(run: &Prepared, backend: &dyn Backend) -> Result<Planned> {
        let (samples, encoders) = (run.sample_programs(backend)?, run.encode_programs(backend)?);
        let forwards = run.forms().into_iter().map(|form| run.training_forward(form)).collect();
        let frozen = run.frozen_programs(backend);
        let planner = Planner { run, backend, forwards, frozen, samples, encoders };
        let budget = run.config.memory.budget;
        let floor = match planner.forwards.first() {
            Some(forward) => recompute::floor(&forward.graph, &run.config.train.gradient_checkpointing, budget)?,
            None => Recompute::none(),
        };
        let question = planner.question(floor.clone());
        let mut planned = planner.planned(&floor, question.as_set(&floor))?;
        // A search leaves some memory to the program itself; the next one counts it.
        while budget > 0 && planned.memory.whole > budget {
            let (recompute, report) = planner.within(budget, &question, &planned.memory)?;
            planned = planner.planned(&recompute, report)?;
        }
        Ok(planned)
    }
}

impl Planner<'_> {
    fn question(&self, floor: Recompute) -> Question<'_> {
        Question::new(&self.forwards, floor, self.backend.typical_speed(self.run.config.train.dtype), self.backend)
    }

    fn planned(&self, recompute: &Recompute, report: Report) -> Result<Planned> {
        let training = |f: &Forward| Program::new(train_name(f.form), differentiate(f.graph.clone(), f.loss, recompute), self.backend);
        let mut programs: Vec<Program> = self.forwards.iter().map(training).collect();
        let training = self.forwards.iter().enumerate().map(|(i, f)| (f.form, i)).collect();
        let frozen = self.frozen.iter().enumerate().map(|(i, (form, _))| (*form, programs.len() + i)).collect();
        programs.extend(self.frozen.iter().map(|(_, program)| program.clone()));
        programs.extend(self.samples.iter().cloned());
        // Of the program with its plans, before it takes any of what is planned.
        let memory = MemoryPlan::new(self.run, &programs, &self.encoders, report, resident_bytes())?;
        Ok(Planned { programs, index: Programs { training, frozen }, memory })
    }

    /// The cheapest choice within the budget. `memory` is the plan without any beyond the floor.
    fn within(&self, budget: u64, question: &Question, memory: &MemoryPlan) -> Result<(Recompute, Report)> {
        let rest = memory.whole_training - memory.arena;
        let samples = self.samples.iter().chain(self.frozen.iter().map(|(_, p)| p)).map(|p| p.plan.arena_bytes).max().unwrap_or(0);
        let fixed = memory.process + memory.encoding;
        if fixed > budget {
            bail!(
                "memory.budget ({}) is less than encoding the pictures and texts takes, {}: a lower datasets[].resolution needs less",
                human(budget),
                human(fixed)
            );
        }
        if rest + samples > budget && samples > question.least_arena() {
            bail!(
                "memory.budget ({}) is less than drawing the samples takes, {}: smaller sample.width and sample.height, or \
                 train.disable_sampling: true, need less",
                human(budget),
                human(rest + samples)
            );
        }
        if self.run.config.train.gradient_checkpointing == Checkpointing::All(false) {
            bail!(
                "this run needs {}, more than memory.budget ({}), and train.gradient_checkpointing: false forbids to compute anything again: \
                 without that key the budget decides",
                human(memory.whole),
                human(budget)
            );
        }
        match question.cheapest(budget.saturating_sub(rest)) {
            Some(choice) => Ok(choice),
            None => bail!(self.refusal(budget, memory, question)),
        }
    }

    /// Says what the least is, and which settings would reach the budget.
    fn refusal(&self, budget: u64, memory: &MemoryPlan, question: &Question) -> String {
        let rest = memory.whole_training - memory.arena;
        let least = rest + question.least_arena();
        let forms: Vec<Form> = self.forwards.iter().map(|f| f.form).collect();
        let arena_of = |change: &dyn Fn(Form) -> Form| {
            let forwards: Vec<Forward> = forms.iter().map(|form| self.run.training_forward(change(*form))).collect();
            Question::new(&forwards, Recompute::none(), self.backend.typical_speed(self.run.config.train.dtype), self.backend).least_arena()
        };
        let mut ways = Vec::new();
        if forms.iter().any(|form| form.batch > 1) {
            ways.push(("train.batch_size: 1", rest + arena_of(&|form| Form { batch: 1, ..form })));
        }
        let step = self.run.model.bucket_step() / self.run.model.factor();
        let half = |side: usize| (side / 2 / step * step).max(step);
        if forms.iter().any(|form| form.size.map(half) != form.size) {
            ways.push(("half the datasets[].resolution", rest + arena_of(&|form| Form { size: form.size.map(half), ..form })));
        }
        let adapters = self.run.adapter_bytes().unwrap_or(0);
        let rank = self.run.config.network.linear.max(1) as u64;
        if rank > 1 {
            ways.push(("network.linear: 1", least - (adapters - adapters / rank)));
        }
        let wide = self.wide_bytes();
        if wide > 0 {
            ways.push(("model.dtype: bf16", least - wide / 2));
        }
        // What comes before training has to fit too.
        let encoding = memory.process + memory.encoding;
        let named = |(name, bytes): &(&str, u64)| format!("{name} ({})", human(*bytes.max(&encoding)));
        let (enough, too_little): (Vec<_>, Vec<_>) = ways.into_iter().partition(|(_, bytes)| *bytes <= budget);
        let list = |ways: &[(&str, u64)]| ways.iter().map(named).collect::<Vec<_>>().join(", ");
        let advice = match (enough.is_empty(), too_little.is_empty()) {
            (false, true) => format!("enough by itself would be one of: {}", list(&enough)),
            (false, false) => format!("enough by itself would be one of: {}; less, but not enough: {}", list(&enough), list(&too_little)),
            (true, false) => format!("no single setting is enough; they would come to: {}", list(&too_little)),
            (true, true) => "no setting of this run takes less".to_string(),
        };
        format!(
            "memory.budget ({}) is too small: with as much computed again as helps (train.gradient_checkpointing) this run still needs {}, of \
             which {} are weights and other fixed parts; {advice}",
            human(budget),
            human(least),
            human(rest)
        )
    }

    /// Bytes of the matrices that are kept in f32.
    fn wide_bytes(&self) -> u64 {
        let Some(forward) = self.forwards.first() else { return 0 };
        let metas = forward.graph.weights().map(|(_, id)| forward.graph.meta(id));
        metas.filter(|meta| meta.shape.rank() > 1 && meta.dtype == base::DType::F32).map(graph::Meta::bytes).sum()
    }
}
