-- expect: ok mesh tp=8 | local layers.0.attention.wk.weight 512,1,8
return require "dialects.kempnerforge" {
  world = 8,
  model = { dim = 512, n_layers = 2, n_heads = 64, n_kv_heads = 8, vocab_size = 256 },
  train = { batch_size = 1, seq_len = 64 },
  distributed = { tp = 8 },
}
