-- expect: error[mesh-product] = 8) do not match world_size (16)
return require "dialects.kempnerforge" {
  world = 16,
  model = { dim = 64, n_layers = 2, n_heads = 8, vocab_size = 256 },
  train = { batch_size = 1, seq_len = 4096 },
  distributed = { tp = 2, dp_shard = 4 },
  as = "original",
}
