package console

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"vapp.dev/nearest"
)

// help is the text of /help.
const help = `/set                     show the settings; /set NAME shows one
/set NAME VALUE          temperature, top_p, top_k, min_p, repetition_penalty, presence_penalty,
                         frequency_penalty, max_tokens, min_tokens, seed, stop, ignore_eos, system,
                         reasoning on|off; the value "default" is the server's
/system [TEXT]           show or set the system message
/retry                   ask the last message again
/clear, /new             begin a new conversation; settings are kept
/image FILE              send an image with the next message
/save [--force] FILE     write the messages as JSON
/load FILE               read messages of /save in place of these
/tokens                  tokens of the conversation and speed of the last reply
/model [NAME]            show the model and those of the server, or choose one
/bye                     leave, as Ctrl-D does
"""                      begin and end a text of several lines
Ctrl-C stops a reply.
`

// commands are the names of the commands.
var commands = []string{"/help", "/?", "/set", "/system", "/retry", "/clear", "/new", "/save", "/load", "/tokens", "/model", "/image", "/bye", "/exit", "/quit"}

// command runs a line that begins with "/".
func (c *Console) command(ctx context.Context, line string) (bye bool, err error) {
	name, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
	rest = strings.TrimSpace(rest)
	if rest != "" && strings.Contains(" /help /? /retry /clear /new /tokens /bye /exit /quit ", " "+name+" ") {
		return false, fmt.Errorf("%s takes no words; %q was given", name, rest)
	}
	switch name {
	case "/bye", "/exit", "/quit":
		return true, nil
	case "/help", "/?":
		c.print("%s", help)
	case "/set":
		return false, c.set(rest)
	case "/system":
		if rest == "" {
			return false, c.set("system")
		}
		return false, c.set("system " + rest)
	case "/retry":
		return false, c.retry(ctx)
	case "/clear", "/new":
		c.chat.messages, c.unsent, c.images, c.last.usage = nil, nil, nil, nil
		c.note("A new conversation.\n")
	case "/save":
		path, force := strings.CutPrefix(rest, "--force ")
		if path = strings.TrimSpace(path); path == "" {
			return false, errors.New("/save needs the name of a file: /save chat.json")
		}
		if err := c.chat.save(path, force); err != nil {
			return false, err
		}
		c.note("%d messages written to %s\n", len(c.chat.all()), Printable(path))
	case "/load":
		if rest == "" {
			return false, errors.New("/load needs the name of a file: /load chat.json")
		}
		if err := c.chat.load(rest); err != nil {
			return false, err
		}
		c.unsent, c.last.usage = nil, nil
		c.note("%d messages read from %s\n", len(c.chat.all()), Printable(rest))
	case "/tokens":
		c.tokens()
	case "/model":
		return false, c.model(ctx, rest)
	case "/image":
		return false, c.image(rest)
	default:
		hint := ""
		if near := nearest.Best(name, commands); near != "" {
			hint = "did you mean " + near + "? "
		}
		return false, fmt.Errorf("there is no command %s; %s/help lists them; write a text that begins with / between %s", Printable(name), hint, fence)
	}
	return false, nil
}

// note prints a line about a command for a person.
func (c *Console) note(format string, args ...any) {
	if c.cfg.Interactive {
		c.print(format, args...)
	}
}

// set shows or changes settings.
func (c *Console) set(rest string) error {
	name, value, given := strings.Cut(rest, " ")
	value = strings.TrimSpace(value)
	if name == "" {
		for _, s := range settings {
			c.print("%-20s %s\n", s.name, show(c.chat.values[s.name]))
		}
		return nil
	}
	s, err := settingOf(name)
	switch {
	case err != nil:
		return err
	case !given || value == "":
		c.print("%-20s %s\n", s.name, show(c.chat.values[s.name]))
		return nil
	case value == "default":
		delete(c.chat.values, s.name)
		c.note("%s is the server's default\n", s.name)
		return nil
	}
	v, err := s.parse(value)
	if err != nil {
		return err
	}
	c.chat.values[s.name] = v
	c.note("%s is %s\n", s.name, show(v))
	return nil
}

// retry asks the last message again.
func (c *Console) retry(ctx context.Context) error {
	if c.unsent != nil {
		return c.ask(ctx, *c.unsent)
	}
	for i := len(c.chat.messages) - 1; i >= 0; i-- {
		if c.chat.messages[i].Role == "user" {
			m, before := c.chat.messages[i], append([]Message{}, c.chat.messages...)
			c.chat.messages = c.chat.messages[:i]
			n := len(c.chat.messages)
			err := c.ask(ctx, m)
			if len(c.chat.messages) == n { // the reply that was there is kept
				c.chat.messages, c.unsent = before, nil
			}
			return err
		}
	}
	return errors.New("there is no message to ask again")
}

// tokens prints the size of the conversation.
func (c *Console) tokens() {
	u := c.last.usage
	if u == nil {
		c.print("no reply with a count of tokens yet\n")
		return
	}
	most := ""
	if n := c.cfg.Model.MaxModelLen; n > 0 {
		most = fmt.Sprintf(" of %d (max_model_len)", n)
	}
	c.print("conversation: %d tokens%s\nlast reply: %s\n", u.Prompt+u.Completion, most, c.speed())
}

// model shows or chooses the model.
func (c *Console) model(ctx context.Context, name string) error {
	list, err := c.cfg.Client.Models(ctx)
	if err != nil {
		return err
	}
	var names []string
	for _, m := range list {
		if m.ID == name {
			c.chat.model, c.cfg.Model = name, m
			c.note("model is %s\n", Printable(name))
			return nil
		}
		names = append(names, Printable(m.ID))
	}
	if name != "" {
		return fmt.Errorf("the server has no model %s; it has %s", Printable(name), strings.Join(names, ", "))
	}
	c.print("model: %s; the server has %s\n", Printable(c.chat.model), strings.Join(names, ", "))
	return nil
}
