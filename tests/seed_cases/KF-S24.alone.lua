-- expect: ok original KempnerForge | experts 4
return require "dialects.kempnerforge" {
  world = 2, as = "original",
  model = { dim = 64, n_layers = 2, n_heads = 8, vocab_size = 256, num_experts = 4 },
  train = { batch_size = 1, seq_len = 64 },
  distributed = { dp_shard = 2 },
}
