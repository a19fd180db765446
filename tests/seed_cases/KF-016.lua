-- expect: ok mesh dp_shard=3 tp=4 | ranks 12
return require "dialects.kempnerforge" {
  world = 12,
  model = { dim = 64, n_layers = 2, n_heads = 8, vocab_size = 256 },
  train = { batch_size = 1, seq_len = 64 },
  distributed = { tp = 4, dp_shard = 3 },
}
