-- All mistakes are reported at once, each with its line.
return require "dialects.automodel" {
  world_size = 8,
  seq_length = 64,
  model = require "models.llama" "tiny",
  distributed = {
    strategy = "ddp",
    dp_size = 8,
    tp_size = 3,
    dp_replicate_size = 3,
    ep_size = 5,
    activation_checkpointing_scope = "all+vision",
    sequence_paralel = true,
  },
  step_scheduler = {
    global_batch_size = 15,
  },
}
