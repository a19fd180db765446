-- expect: ok stages 8,8,8,8 | parallel pp(interleaved_1f1b, 2 chunks), fsdp2(keep for the step)
return require "dialects.automodel" {
  world_size = 4, seq_length = 32,
  model = require "models.llama" { size = "tiny", layers = 32, dim = 16, hidden = 32, heads = 2, kv_heads = 2, vocab = 32 },
  hf = { torch_dtype = "float32" },
  distributed = { pp_size = 4, pipeline = { pp_schedule = "Interleaved1F1B", layers_per_stage = 7, round_virtual_stages_to_pp_multiple = "up" } },
  step_scheduler = { local_batch_size = 8 },
}
