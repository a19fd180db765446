-- expect: ok mesh dp_shard=3 tp=3
return require "dialects.kempnerforge" {
  world = 9,
  model = { dim = 48, n_layers = 2, n_heads = 6, vocab_size = 256, ffn_hidden_dim = 96 },
  train = { batch_size = 1, seq_len = 66 },
  distributed = { tp = 3 },
}
