-- expect: error[dialect-unsupported] pp_size = 2 | an encoder and a decoder
return require "dialects.automodel" {
  world_size = 2, seq_length = 32,
  model = require "models.t5" "v1.1-tiny",
  hf = { torch_dtype = "float32" },
  distributed = { pp_size = 2, pipeline = {} }, step_scheduler = { local_batch_size = 2 },
}
