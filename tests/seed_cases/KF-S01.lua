-- expect: error[replicate-shards] dp_replicate = 2 without dp_shard is not replicated | dp_shard = 2 plans the same shards
return require "dialects.kempnerforge" {
  world = 2,
  model = { dim = 64, n_layers = 2, n_heads = 8, vocab_size = 256 },
  train = { batch_size = 1, seq_len = 64 },
  distributed = { dp_replicate = 2 },
}
