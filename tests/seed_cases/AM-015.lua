-- expect: error[block-without-axis] pipeline_config requires pp_size > 1
return require "dialects.automodel" {
  world_size = 8, seq_length = 32, api = true,
  model = require "models.llama" "tiny",
  hf = { torch_dtype = "float32" },
  distributed = { pp_size = 1, pipeline = { pp_schedule = "1f1b" } },
}
