-- expect: ok mesh tp=4 | parallel meta, tp(sequence) by 11 patterns, materialize, compile(model)
return require "dialects.kempnerforge" {
  world = 4,
  model = { dim = 64, n_layers = 2, n_heads = 8, vocab_size = 256, max_seq_len = 8192 },
  train = { batch_size = 1, seq_len = 4100 },
  distributed = { tp = 4 },
}
