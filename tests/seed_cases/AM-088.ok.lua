-- expect: ok micro-batches 2
return require "dialects.automodel" {
  world_size = 4, seq_length = 32,
  model = require "models.llama" "tiny",
  hf = { torch_dtype = "float32" },
  distributed = {  },
  step_scheduler = { global_batch_size = 16, local_batch_size = 2 },
}
