-- expect: ok mesh dp_replicate=2 dp_shard=2 | data 0/4 1/4 2/4 3/4 | equal
return require "dialects.kempnerforge" {
  world = 4,
  model = { dim = 64, n_layers = 2, n_heads = 8, vocab_size = 256 },
  train = { batch_size = 1, seq_len = 64 },
  distributed = { dp_replicate = 2 },
}
