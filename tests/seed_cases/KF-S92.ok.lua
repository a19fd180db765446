-- expect: ok ranks 4 | mesh dp_shard=2 tp=2
return require "dialects.kempnerforge" {
  world = 4,
  model = { dim = 64, n_layers = 2, n_heads = 8, n_kv_heads = 2, vocab_size = 256, ffn_hidden_dim = 150 },
  train = { batch_size = 1, seq_len = 64 },
  distributed = { tp = 2 },
}
