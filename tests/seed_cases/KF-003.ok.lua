-- expect: ok mesh dp_shard=8 tp=2 | ranks 16
return require "dialects.kempnerforge" {
  world = 16,
  model = { dim = 64, n_layers = 2, n_heads = 8, vocab_size = 256 },
  train = { batch_size = 1, seq_len = 64 },
  distributed = { tp = 2, dp_shard = 8 },
}
