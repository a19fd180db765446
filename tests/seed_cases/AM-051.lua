-- expect: error[dialect-unsupported] multi-token prediction (1 modules) with cp_size = 2 and pp_size = 2
return require "dialects.automodel" {
  world_size = 4, seq_length = 32,
  model = require "models.llama" "tiny",
  hf = { torch_dtype = "float32", num_nextn_predict_layers = 1 },
  step_scheduler = { local_batch_size = 2 },
  distributed = { cp_size = 2, pp_size = 2, pipeline = { pp_schedule = "1f1b", pp_microbatch_size = 1 } },
}
