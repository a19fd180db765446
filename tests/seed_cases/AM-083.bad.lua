-- expect: error[tied-across-stages] tie_word_embeddings with pp_size = 2
return require "dialects.automodel" {
  world_size = 2, seq_length = 32,
  model = require "models.llama" { size = "tiny", tied = true },
  hf = { torch_dtype = "float32" },
  distributed = { pp_size = 2, pipeline = { pp_schedule = "1f1b" } },
  step_scheduler = { local_batch_size = 8 },
}
