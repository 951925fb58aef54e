//! vapp's text library: tokenizer, chat templates, grammars and the decoders of images behind one C
//! ABI (vapptext.h). Code that can panic runs under abi::guard. It must not know models or requests.
//! Start reading at abi.rs.
mod abi;
mod added;
mod budget;
mod content;
mod environment;
mod filters;
mod grammar;
mod images;
mod json;
mod methods;
mod operators;
mod program;
mod png;
mod pystr;
mod recipe;
mod regex_nfa;
mod slicing;
mod strftime;
mod template;
mod text;
mod vocab;
mod windows;

/// The C ABI that the Go package github.com/daulet/tokenizers calls, from its own source.
#[allow(warnings)]
mod daulet {
    include!(env!("DAULET_LIB"));
}
