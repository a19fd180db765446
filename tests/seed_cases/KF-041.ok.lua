-- expect: ok mesh dp_shard=2 | equal
return require "dialects.kempnerforge" {
  world = 2,
  model = { dim = 64, n_layers = 2, n_heads = 8, vocab_size = 256, tie_embeddings = true },
  train = { batch_size = 1, seq_len = 64 },
  distributed = { pp = 1 },
}
