-- expect: ok stages 1,1,1,1 | holder output.weight 3
return require "dialects.automodel" {
  world_size = 4, seq_length = 32,
  model = require "models.llama" { size = "tiny", layers = 4, dim = 16, hidden = 32, heads = 2, kv_heads = 2, vocab = 32 },
  hf = { torch_dtype = "float32" },
  distributed = { pp_size = 4, pipeline = { module_fqns_per_model_part = {
    { "model.embed_tokens", "model.layers.0" },
    { "model.layers.1" },
    { "model.layers.2" },
    { "model.layers.3", "model.norm", "lm_head" } } } },
  step_scheduler = { local_batch_size = 8 },
}
