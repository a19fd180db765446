-- The reference of tandem.nn: how to call each function, and its options, each with name, default
-- and meaning. nn.lua reads the names of the options here. docs/reference/lua.md prints these
-- sentences; a test compares the two.
local list = {
  { name = "nn.module", call = "nn.module { fields, forward = function(m, ...) ... end }",
    doc = "A module. Fields that are modules become its children; forward reads them as m.field. "
      .. "Other fields are notes for passes: tp_col, tp_row and tp_vocab list paths of modules inside this one; "
      .. "fsdp2_shard = true makes the module an FSDP unit." },
  { name = "nn.block", call = "nn.block { fields, forward = function(m, ...) ... end }",
    doc = "A module that repeats. It is a unit of FSDP2 and of full activation checkpointing, "
      .. "and pipeline stages begin at blocks." },
  { name = "nn.list", call = "nn.list { a, b } or nn.list(n, function(i) ... end)",
    doc = "Modules in a row. Calling the list calls each module with the output of the one before. Paths count from 0, ipairs from 1." },
  { name = "nn.linear", call = "nn.linear(in_features, out_features, options)",
    shape = "[b, s, in] -> [b, s, out]", doc = "A linear map.", options = {
      { "bias", "false", "Add a bias." },
      { "init", "nn.normal(0, 0.02)", "Initial values of the weight." },
      { "weight", "", "An nn.embedding whose weight the linear shares: a tied head." },
      { "segments", "", "A fused projection. A number n gives n equal segments, [b, s, n, out/n]. A list of sizes gives "
        .. "segments of these sizes, [b, s, g, out/g]. nn.segment takes one." },
      { "spectral_norm", "false", "Divides the output by the largest singular value of the weight." } } },
  { name = "nn.segment", call = "nn.segment(x, i)", shape = "[b, s, n, size] -> [b, s, size]",
    doc = "The i-th segment of a fused projection, from 1." },
  { name = "nn.embedding", call = "nn.embedding(vocab, dim, options)", shape = "[b, s] -> [b, s, dim]",
    doc = "A table of vectors, one for each token.", options = {
      { "init", "nn.normal(0, 0.02)", "Initial values of the table." } } },
  { name = "nn.position", call = "nn.position(max_len, dim, options)", shape = "[b, s, dim] -> [b, s, dim]",
    doc = "Adds a learned vector for each position. Only the rows that seq reaches exist.", options = {
      { "init", "nn.normal(0, 0.02)", "Initial values of the table." } } },
  { name = "nn.sinusoid", call = "nn.sinusoid(x, options)", shape = "[b, s, dim] -> [b, s, dim]",
    doc = "Adds sines of the position to the first half of the features and cosines to the second.", options = {
      { "theta", "10000", "The lowest frequency is 1 / theta." } } },
  { name = "nn.rmsnorm", call = "nn.rmsnorm(dim, options)", shape = "[b, s, dim] -> [b, s, dim]",
    doc = "RMS normalisation. It also takes [b, s, heads, dim] and normalises each head.", options = {
      { "eps", "1e-5", "Added to the mean square." }, { "init", "nn.ones", "Initial values of the weight." } } },
  { name = "nn.layernorm", call = "nn.layernorm(dim, options)", shape = "[b, s, dim] -> [b, s, dim]",
    doc = "Layer normalisation, with weight and bias.", options = {
      { "eps", "1e-5", "Added to the variance." }, { "init", "nn.ones", "Initial values of the weight." } } },
  { name = "nn.attention", call = "nn.attention { dim = ..., heads = ..., ... }", shape = "[b, s, dim] -> [b, s, dim]",
    doc = "Multi-head attention. Its children are wq, wk, wv and wo. "
      .. "With attention(x, { memory = y }), keys and values come from y. With { table = t }, the distances in t "
      .. "are added to the scores.", options = {
      { "dim", "required", "Features of the input." },
      { "heads", "required", "Query heads." },
      { "kv_heads", "heads", "The number of key and value heads; it must divide heads." },
      { "head_dim", "dim / heads", "Features of a head." },
      { "causal", "true", "A token attends only to itself and to earlier tokens." },
      { "bias", "false", "Biases of q, k and v." },
      { "out_bias", "bias", "A bias of the output." },
      { "rope_theta", "", "Rotates queries and keys by their position, with this base." },
      { "rope_scaling", "", "Scaling of the rotation for a longer context, as nn.rope takes it." },
      { "rope_image", "", "An image among the tokens, as nn.rope takes it." },
      { "rope_dims", "head_dim", "Only this many first elements of a head are rotated." },
      { "scale", "head_dim^-0.5", "The factor of the scores." },
      { "window", "", "A query sees this many keys; the last of them is its own." },
      { "cap", "", "A score x becomes cap * tanh(x / cap)." },
      { "sinks", "false", "Each head has one more score, which takes part in the softmax and has no value. These scores are the child `sinks`." },
      { "dropout", "0", "The probability of dropping a score after the softmax." },
      { "qk_norm", "false", "Normalises each query and key head by its root mean square: true or { eps }. The children are q_norm and k_norm." },
      { "fused", "false", "One child wqkv instead of wq, wk and wv; tp still cuts it by heads." },
      { "init", "nn.normal(0, 0.02)", "Initial values of the weights." },
      { "out_init", "init", "Initial values of wo." },
      { "spectral_norm", "false", "Spectral norm of all its linears." } } },
  { name = "nn.mamba2", call = "nn.mamba2 { dim = ..., heads = ..., ... }", shape = "[b, s, dim] -> [b, s, dim]",
    doc = "A state-space layer: the mixer of Mamba-2. Its children are wz, wx, wb, wc, wdt (one product in the published "
      .. "code), conv_x, conv_b, conv_c, scan, norm and wo. tp and cp cut its heads.", options = {
      { "dim", "required", "Features of the input." },
      { "heads", "required", "Heads." },
      { "head_dim", "64", "Features of a head." },
      { "groups", "1", "The number of groups of heads; it must divide heads. The heads of a group share B and C, and are normalised together." },
      { "state", "128", "The numbers that each feature of a head remembers; head_dim * state is at most 32768." },
      { "window", "4", "The tokens that the convolutions read; the last is the token itself." },
      { "chunk", "256", "The tokens of a chunk in the published kernels. It affects only the predicted time." },
      { "bias", "false", "Biases of the projections." },
      { "eps", "1e-5", "Added to the mean square of the norm." },
      { "init", "nn.normal(0, 0.02)", "Initial values of the projections." },
      { "out_init", "init", "Initial values of wo." } } },
  { name = "nn.latent_attention", call = "nn.latent_attention { dim = ..., heads = ..., kv_rank = ..., ... }",
    shape = "[b, s, dim] -> [b, s, dim]",
    doc = "Attention whose keys and values are made from one small projection (DeepSeek). Its children are wkv_a, kv_norm, wk_b, "
      .. "wv_b, wk_rope, wq, wo; with q_rank also wq_a and q_norm.", options = {
      { "dim", "required", "Features of the input." }, { "heads", "required", "Heads." },
      { "kv_rank", "required", "The features from which keys and values are made." },
      { "q_rank", "", "The features from which queries are made. Without q_rank, queries are made from the input." },
      { "nope_dim", "required", "The features of a head that are not rotated." },
      { "rope_dim", "required", "The features of a head that are rotated. In the keys all heads share them." },
      { "value_dim", "nope_dim", "Features of a value." },
      { "rope_theta", "10000", "The base of the rotation." },
      { "rope_scaling", "", "Scaling of the rotation for a longer context, as nn.rope takes it." },
      { "scale", "(nope_dim + rope_dim)^-0.5", "The factor of the scores. By default YaRN's mscale_all_dim raises this factor: "
        .. "times (0.1 mscale_all_dim ln factor + 1)^2." },
      { "causal", "true", "A token attends only to itself and to earlier tokens." },
      { "eps", "1e-5", "The epsilon of the two norms." },
      { "init", "nn.normal(0, 0.02)", "Initial values of the weights." }, { "out_init", "init", "Initial values of wo." } } },
  { name = "nn.distance_table", call = "nn.distance_table { heads = ..., ... }", shape = "-> [buckets, kv_heads, heads / kv_heads]",
    doc = "Numbers that attention adds to its scores, by the distance of key and query (T5). Calling it gives the table.", options = {
      { "heads", "required", "Query heads." }, { "kv_heads", "heads", "Key and value heads." },
      { "buckets", "32", "Numbers of each head." }, { "distance", "128", "The distance at which the last bucket begins." },
      { "init", "nn.normal(0, 0.02)", "Initial values of the table." } } },
  { name = "nn.span", call = "nn.span(x, first, count)", shape = "[b, s, ...] -> [b, count, ...]",
    doc = "Some tokens of each sequence; first counts from 0. It also takes ids and labels." },
  { name = "nn.moe", call = "nn.moe { dim = ..., hidden = ..., experts = ..., ... }",
    shape = "[b, s, dim] -> [b, s, dim]",
    doc = "A mixture of experts: each token goes to the top_k experts with the largest router logits. "
      .. "An expert computes w2(silu(w1 x) * w3 x). Its children are router, w1, w2 and w3.", options = {
      { "gated", "true", "false: an expert computes w2(gelu(w1 x)) and has no w3." },
      { "dim", "required", "Features of the input." },
      { "hidden", "required", "The features between the products of an expert." },
      { "experts", "required", "The number of experts; at most 1024." },
      { "top_k", "2", "The number of experts to which each token goes." },
      { "capacity_factor", "1.25", "The room in an expert, as a multiple of an even share of one sequence's tokens. "
        .. "\"all\": no token is dropped, and every expert has room for all tokens. \"dropless\": no token is dropped, "
        .. "and only the rows that tokens take are stored, sent and computed. ep { bound } sets the memory for them." },
      { "normalise", "true", "The weights of the chosen experts add up to 1." },
      { "bias", "false", "Adds biases to the router and to the experts." },
      { "limit", "", "Limits the gates, as in gpt-oss. The gate x is capped at limit and becomes x sigmoid(1.702 x). The other "
        .. "product is clamped between -limit and limit. Then 1 is added, and the sum is multiplied by the gate." },
      { "scaling", "1", "The factor of the weights." },
      { "sigmoid", "false", "The weights are sigmoids of the logits instead of their softmax. Needs aux_loss = 0." },
      { "groups", "1", "The number of groups of experts. A token uses only the best groups. The score of a group is its largest logit "
        .. "or, with sigmoid, the sum of its two largest sigmoids." },
      { "top_groups", "groups", "The number of groups from which a token may choose." },
      { "aux_loss", "0.01", "The factor of the loss that balances the experts. 0 leaves it out." },
      { "balance_rate", "0", "Adds a bias for each expert to its sigmoid when experts are chosen. After each step the bias "
        .. "grows by this rate if the expert had fewer choices than the mean, and falls if it had more." },
      { "z_loss", "0", "The factor of the loss that keeps the router's logits small: the mean of their squared "
        .. "log-sum-exp." },
      { "init", "nn.normal(0, 0.02)", "Initial values of router, w1 and w3." },
      { "out_init", "init", "Initial values of w2." } } },
  { name = "nn.silu", call = "nn.silu(x)", doc = "x * sigmoid(x)." },
  { name = "nn.gelu", call = "nn.gelu(x)", doc = "GELU, in its tanh form." },
  { name = "nn.quick_gelu", call = "nn.quick_gelu(x)", doc = "x * sigmoid(1.702 * x): the QuickGELU of CLIP and Qwen2-VL." },
  { name = "nn.sigmoid", call = "nn.sigmoid(x)", doc = "1 / (1 + exp(-x))." },
  { name = "nn.relu", call = "nn.relu(x)", doc = "max(x, 0), element by element." },
  { name = "nn.relu2", call = "nn.relu2(x)", doc = "The square of nn.relu(x)." },
  { name = "nn.soft_cap", call = "nn.soft_cap(x, cap)", doc = "cap * tanh(x / cap)." },
  { name = "nn.conv2d", call = "nn.conv2d(in_channels, out_channels, options)",
    shape = "[b, in, h, w] -> [b, out, h, w]", doc = "A convolution of fields. A plain 1x1 convolution may be split over tp "
      .. "by tp_col or tp_row. Options are numbers for both directions, or { height, width }.", options = {
      { "kernel", "1", "The rows and columns of the window." }, { "stride", "1", "The distance between windows." },
      { "padding", "0", "The rows and columns added at each edge." },
      { "dilation", "1", "The distance between the rows of a window." },
      { "groups", "1", "Groups of channels that are convolved separately; in_channels: depthwise." },
      { "padding_mode", "zeros", "zeros, reflect, symmetric or circular; or { height, width }." },
      { "bias", "true", "Adds a bias to each channel." }, { "init", "nn.normal(0, 0.02)", "Initial values of the weight." },
      { "spectral_norm", "false", "Divides the output by the largest singular value of the weight." } } },
  { name = "nn.conv_transpose2d", call = "nn.conv_transpose2d(in_channels, out_channels, options)",
    shape = "[b, in, h, w] -> [b, out, h, w]", doc = "A transposed convolution.", options = {
      { "kernel", "1", "The rows and columns of the window." }, { "stride", "1", "The distance of neighbouring input points in the output." },
      { "padding", "0", "The rows and columns removed at each edge." },
      { "output_padding", "0", "The rows and columns added at the last edge." },
      { "dilation", "1", "The distance between the rows of a window." }, { "groups", "1", "Groups of channels." },
      { "padding_mode", "zeros", "Only zeros." }, { "bias", "true", "Adds a bias to each channel." },
      { "init", "nn.normal(0, 0.02)", "Initial values of the weight." },
      { "spectral_norm", "false", "Divides the output by the largest singular value of the weight." } } },
  { name = "nn.group_norm", call = "nn.group_norm(groups, channels, options)", shape = "[b, channels, h, w] -> same",
    doc = "Normalises each group of channels over the whole grid.", options = {
      { "eps", "1e-5", "Added to the variance." }, { "init", "nn.ones", "Initial values of the weight." } } },
  { name = "nn.channel_norm", call = "nn.channel_norm(channels, options)", shape = "[b, channels, h, w] -> same",
    doc = "Layer normalisation of each point over its channels.", options = {
      { "eps", "1e-5", "Added to the variance." }, { "init", "nn.ones", "Initial values of the weight." } } },
  { name = "nn.avg_pool2d", call = "nn.avg_pool2d(x, options)", doc = "The mean of each window; padding counts.", options = {
      { "kernel", "1", "The rows and columns of the window." }, { "stride", "kernel", "The distance between windows." },
      { "padding", "0", "The rows and columns added at each edge." },
      { "dilation", "1", "The distance between the rows of a window." },
      { "padding_mode", "zeros", "zeros, reflect, symmetric or circular." } } },
  { name = "nn.max_pool2d", call = "nn.max_pool2d(x, options)", doc = "The largest point of each window.", options = {
      { "kernel", "1", "The rows and columns of the window." }, { "stride", "kernel", "The distance between windows." },
      { "padding", "0", "The rows and columns added at each edge; these are never the maximum." },
      { "dilation", "1", "The distance between the rows of a window." }, { "padding_mode", "zeros", "Only zeros." } } },
  { name = "nn.pad", call = "nn.pad(x, options)", doc = "Adds rows and columns at the edges, or removes them.", options = {
      { "rows", "0", "{ top, bottom }; negative numbers crop." },
      { "columns", "0", "{ left, right }; negative numbers crop." },
      { "mode", "zeros", "zeros, reflect, symmetric (a mirror that repeats the edge) or circular; or { height, width }. "
        .. "earth: rows behind a pole are those on the other side of the globe; columns are circular." } } },
  { name = "nn.resize", call = "nn.resize(x, options)", doc = "Resizes the field to another grid.", options = {
      { "height", "as it is", "Rows of the result." }, { "width", "as it is", "Columns of the result." },
      { "mode", "bilinear", "bilinear, or nearest." } } },
  { name = "nn.pixel_shuffle", call = "nn.pixel_shuffle(x, factor)",
    shape = "[b, c f f, h, w] -> [b, c, f h, f w]", doc = "Channels become points." },
  { name = "nn.concat", call = "nn.concat(a, b)", doc = "The channels of a, then those of b." },
  { name = "nn.channels", call = "nn.channels(x, first, count)", doc = "Some channels of a field; first counts from 0." },
  { name = "nn.mse_loss", call = "nn.mse_loss(prediction, target, options)", shape = "[b, c, h, w] twice -> loss",
    doc = "The mean squared error over channels and points.", options = {
      { "latitude", "false", "Weighs each row by the cosine of its latitude; the weights have the mean 1." } } },
  { name = "nn.window_offsets", call = "nn.window_offsets(rows, columns)",
    shape = "-> [b, (2 rows - 1)(2 columns - 1), 2]", doc = "The differences between the positions of two points of a window, for each sample." },
  { name = "nn.window_attention", call = "nn.window_attention(q, k, v, options)", shape = "[b, heads x d, h, w] thrice -> same",
    doc = "Attention among the points of each window.", options = {
      { "heads", "required", "The number of heads; it must divide the channels." },
      { "window", "required", "The rows and columns of a window; they must divide the field." },
      { "strided", "false", "The points of a window lie as far apart as there are windows." },
      { "bias", "required", "[b, n, 1]: a bias for each difference of two points (nn.window_offsets)." },
      { "scale", "(channels / heads)^-0.5", "The factor of the scores." } } },
  { name = "nn.image", call = "nn.image(options)", shape = "-> [b, patches, channels x patch x patch]",
    doc = "The image of each sample, cut into patches. The image belongs to the sample, in addition to its tokens. A linear of it is a patch "
      .. "embedding. `run` draws images at random.", options = {
      { "height", "required", "Rows of points." }, { "width", "height", "Columns of points." },
      { "patch", "required", "The rows and columns of a patch; they must divide the image." }, { "channels", "3", "Numbers of a point." } } },
  { name = "nn.lead_tokens", call = "nn.lead_tokens(count, dim, options)", shape = "[b, s, dim] -> [b, count + s, dim]",
    doc = "Learned tokens in front of each sequence, such as a class token. `nn.span(m.lead(x), 0, count)` takes them alone: "
      .. "learned queries for attention with { memory = x }.", options = {
      { "init", "normal(0, 0.02)", "Initial values." } } },
  { name = "nn.join", call = "nn.join(a, b)", shape = "[b, s, k], [b, t, k] -> [b, s + t, k]",
    doc = "The tokens of b after those of a." },
  { name = "nn.merge_tokens", call = "nn.merge_tokens(x, count)", shape = "[b, count x s, k] -> [b, s, count x k]",
    doc = "Each `count` neighbouring tokens become one, which has the features of all of them (Qwen2-VL)." },
  { name = "nn.scale", call = "nn.scale(x, factor)", doc = "x times a constant. Sums and products of equal shapes are x + y and x * y." },
  { name = "nn.rope", call = "nn.rope(x, options)", shape = "[b, s, heads, d] -> [b, s, heads, d]",
    doc = "Rotates pairs of features by the token's position.", options = {
      { "theta", "10000", "The base of the rotation's frequencies." },
      { "scaling", "", "Llama 3.1's stretching: { factor, low, high, context }. YaRN: { kind = 'yarn', factor, context }. "
        .. "YaRN also takes fast = 32 and slow = 1 (the turns within the original context where its ramp ends), truncate = true "
        .. "(the ramp ends at whole pairs), mscale and mscale_all_dim. LongRoPE: { kind = 'longrope', short, long, context, length }. "
        .. "short has a factor for each pair, for sequences up to the original context; long is for longer ones; length is the new "
        .. "context. attention_factor = sqrt(1 + ln(length / context) / ln(context)) multiplies queries and keys." },
      { "image", "", "The rows and columns of an image among the tokens (Qwen2-VL). In a decoder: { rows, columns, first = 0, sections }. "
        .. "first is the image's first token; sections are the numbers of pairs that turn by time, by row and by column. After the "
        .. "image, positions continue from its larger side. In an encoder: { rows, columns, block }. Patches come in blocks of "
        .. "block x block; half of the pairs turn by row, half by column." } } },
  { name = "nn.dropout", call = "nn.dropout(x, p)",
    doc = "Drops each element with probability p. The draw depends on seed, step, micro-batch, place and global element, "
      .. "so every mesh drops the same elements." },
  { name = "nn.cross_entropy", call = "nn.cross_entropy(logits, labels, options)", shape = "[b, s, vocab], [b, s] -> loss",
    doc = "The cross-entropy loss. Tokens with a negative label do not count.", options = {
      { "label_smoothing", "0", "The part of the label's probability that is spread evenly over the whole vocabulary." },
      { "z_loss", "0", "This factor times the squared log-sum-exp of the logits is added to the loss." } } },
  { name = "nn.normal", call = "nn.normal(mean, deviation)", doc = "Initial values from a normal distribution. Defaults: 0 and 1." },
  { name = "nn.uniform", call = "nn.uniform(from, to)", doc = "Initial values between from and to, uniformly distributed. Defaults: 0 and 1." },
  { name = "nn.zeros", call = "nn.zeros", doc = "Initial values of 0." },
  { name = "nn.ones", call = "nn.ones", doc = "Initial values of 1." },
  { name = "nn.uninitialized", call = "nn.uninitialized", doc = "No initial values. A plan with such a parameter is refused (init-missing)." },
  { name = "nn.family", call = "nn.family(name, what, sizes, defaults, parts)",
    doc = "For a file that describes a model family. Returns the model's name, and the config of one size with the "
      .. "plan's changes. The argument `what` names the size, as in \"8b\" or { size = \"8b\", layers = 4 }. A table in the plan replaces the default table. With parts = { vision = true }, "
      .. "only the keys that the plan's table vision states are replaced." },
  { name = "nn.within", call = "nn.within(family, key, value, least, most, multiple)",
    doc = "For a model family: returns the value of a config's key. Refuses the plan unless the value is an integer from least "
      .. "to most, and a multiple of `multiple`." },
  { name = "nn.with", call = "nn.with(config, changes)", doc = "A copy of a config with some keys changed." },
  { name = "nn.small", call = "nn.small(config, mesh, changes)",
    doc = "For a family's shrink(config, mesh): returns the smallest decoder of the same structure, for `tandem run --verify`." },
  { name = "nn.small_heads", call = "nn.small_heads(heads, kv_heads, mesh)",
    doc = "The numbers of heads and KV heads of a shrunk model, which tp splits in the same way as the original's." },
  { name = "nn.layer_pattern", call = "nn.layer_pattern(family, config, letters)",
    doc = "For families whose config.pattern has a letter for each layer: returns the pattern for config.layers layers. "
      .. "A shorter pattern is repeated. letters: { M = \"state space\", ... }." },
  { name = "nn.small_scan_heads", call = "nn.small_scan_heads(heads, groups, mesh)",
    doc = "The numbers of heads and groups of a shrunk state-space layer, which tp and cp cut in the same way as the "
      .. "original's." },
}

local known = {} -- such as known["nn.linear"].bias == true
for _, entry in ipairs(list) do
  known[entry.name] = {}
  for _, option in ipairs(entry.options or {}) do known[entry.name][option[1]] = true end
end
return { list = list, known = known }
