-- expect: ok mesh tp=4 | local layers.0.attention.wq.weight 256,8,1,8
return require "dialects.kempnerforge" {
  world = 4,
  model = { dim = 256, n_layers = 2, n_heads = 32, vocab_size = 256 },
  train = { batch_size = 1, seq_len = 64 },
  distributed = { tp = 4, dp_shard = 1 },
}
