#include "AnimeGamerGame.h"

#include "AnimeGamerLink.h"
#include "AnimeGamerSubsystem.h"
#include "Engine/Texture2D.h"
#include "HAL/PlatformTime.h"
#include "Misc/FileHelper.h"
#include "RHICommandList.h"
#include "RenderingThread.h"
#include "TextureResource.h"

namespace
{
FAnimeGamerValues ToValues(const ag_character& Character)
{
	FAnimeGamerValues Values;
	Values.Stamina = Character.stamina;
	Values.Social = Character.social;
	Values.Entertainment = Character.entertainment;
	return Values;
}

TArray<FAnimeGamerAnswer> ToAnswers(const ag_answer* Answers, size_t Count)
{
	TArray<FAnimeGamerAnswer> Converted;
	for (size_t Number = 0; Number < Count; ++Number)
	{
		FAnimeGamerAnswer Answer;
		Answer.Code = ToText(Answers[Number].code);
		Answer.Value = ToText(Answers[Number].value);
		Answer.People = ToTexts(Answers[Number].people);
		Answer.Words = ToTexts(Answers[Number].words);
		Converted.Add(Answer);
	}
	return Converted;
}

FAnimeGamerUnderstood ToUnderstood(const ag_understood& Said)
{
	FAnimeGamerUnderstood Understood;
	Understood.Text = ToText(Said.text);
	Understood.Notice = ToText(Said.notice);
	Understood.Answers = ToAnswers(Said.answers, Said.answer_count);
	for (size_t Number = 0; Number < Said.count; ++Number)
	{
		FAnimeGamerPerson Person;
		Person.Name = ToText(Said.people[Number].name);
		Person.Clothes = ToText(Said.people[Number].clothes);
		Understood.People.Add(Person);
	}
	Understood.Motion = ToText(Said.motion);
	Understood.MotionLevel = Said.level;
	Understood.Place = ToText(Said.place);
	Understood.Hour = ToText(Said.hour);
	Understood.Position = ToText(Said.position);
	Understood.Unknown = ToTexts(Said.unknown);
	return Understood;
}

FAnimeGamerState ToState(const ag_state& State)
{
	FAnimeGamerState Shown;
	Shown.MotionLevel = State.motion_level;
	Shown.Character = ToValues(State.character);
	Shown.Shown = ToValues(State.shown);
	return Shown;
}

ag_play_mode ToPlayMode(EAnimeGamerPlayback Playback)
{
	switch (Playback)
	{
	case EAnimeGamerPlayback::Loop:
		return AG_LOOP;
	case EAnimeGamerPlayback::PingPong:
		return AG_PING_PONG;
	default:
		return AG_HOLD;
	}
}

// A texture of the picture's size with the picture in it, from the draws of this tick on: the one given, or a new one.
UTexture2D* Upload(UTexture2D* Texture, const std::shared_ptr<const animegamer_unreal::Picture>& Picture)
{
	if (Texture == nullptr || Texture->GetSizeX() != Picture->width || Texture->GetSizeY() != Picture->height)
	{
		Texture = UTexture2D::CreateTransient(Picture->width, Picture->height, PF_B8G8R8A8);
		Texture->SRGB = true;
		Texture->UpdateResource();
	}
	// The resource is made by a render command before this one; it is released by one after it.
	FTextureResource* const Resource = Texture->GetResource();
	ENQUEUE_RENDER_COMMAND(AnimeGamerUpload)([Resource, Picture](FRHICommandListImmediate& RHICmdList)
	{
		if (Resource != nullptr && Resource->TextureRHI.IsValid())
		{
			const FUpdateTextureRegion2D Region(0, 0, 0, 0, static_cast<uint32>(Picture->width), static_cast<uint32>(Picture->height));
			RHICmdList.UpdateTexture2D(Resource->TextureRHI, 0, Region, static_cast<uint32>(Picture->stride), Picture->pixels.get());
		}
	});
	return Texture;
}

TArray<FAnimeGamerTurn> ToTurns(const ag_listed& Listed)
{
	TArray<FAnimeGamerTurn> Turns;
	for (size_t Number = 0; Number < Listed.count; ++Number)
	{
		FAnimeGamerTurn Turn;
		Turn.Turn = static_cast<int32>(Listed.turns[Number].turn);
		Turn.Instruction = ToText(Listed.turns[Number].instruction);
		Turns.Add(Turn);
	}
	return Turns;
}
}

FAnimeGamerLink::FAnimeGamerLink(UAnimeGamerGame& InOwner, TSharedPtr<animegamer_unreal::Connection> InConnection, const FString& Token)
	: Owner(InOwner), Connection(InConnection)
{
	Game = Connection->add(*this);
	Game->open(std::string(TCHAR_TO_UTF8(*Token)));
}

FAnimeGamerLink::~FAnimeGamerLink()
{
	Connection->leave(Game);
}

void FAnimeGamerLink::opened(const ag_game_info& Info, const ag_understood& Seen)
{
	Owner.Token = ToText(Info.token);
	Owner.Seen = ToUnderstood(Seen);
	Owner.OnOpened.Broadcast(Owner.Token);
}

void FAnimeGamerLink::offered(const std::vector<std::string>& Instructions)
{
	Owner.OnOffers.Broadcast(ToTexts(Instructions));
}

// Objects that listen may call Resume, which replaces the link: use nothing of it after a broadcast, or hold it.
void FAnimeGamerLink::heard(const ag_event& Event)
{
	const TSharedPtr<FAnimeGamerLink> Now = Owner.Link;
	const int64 Ticket = Game->ticket();
	switch (Event.type)
	{
	case AG_EVENT_UNDERSTOOD:
		Owner.OnUnderstood.Broadcast(ToUnderstood(Event.of.understood));
		break;
	case AG_EVENT_STATE:
		Owner.OnState.Broadcast(ToState(Event.of.state));
		break;
	case AG_EVENT_PROGRESS:
		Owner.OnProgress.Broadcast(static_cast<float>(Event.of.progress.step) / static_cast<float>(Event.of.progress.steps), static_cast<float>(Event.of.progress.seconds_left));
		break;
	case AG_EVENT_DONE:
		Owner.OnDone.Broadcast(static_cast<int32>(Event.of.done.turns), static_cast<float>(Event.of.done.total_s));
		if (Owner.Link == Now && !Screen.end(Ticket)) // a clip without a picture
		{
			Game->hear(Ticket, Event.turn);
			Owner.OnClipEnd.Broadcast(static_cast<int32>(Event.turn));
		}
		break;
	case AG_EVENT_LISTED:
		Owner.OnListed.Broadcast(ToTurns(Event.of.listed), Event.of.listed.more != 0);
		break;
	case AG_EVENT_GAME_CLOSED:
		Owner.OnClosed.Broadcast();
		break;
	default:
		break;
	}
}

void FAnimeGamerLink::frame(animegamer_unreal::Picture& Picture)
{
	Screen.add(Connection->pool(), Picture, Game->ticket(), Connection->fps());
}

void FAnimeGamerLink::rewound(const ag_game_info& Info)
{
	Owner.OnRewound.Broadcast(static_cast<int32>(Info.turns));
}

void FAnimeGamerLink::branched(const ag_game_info& Info)
{
	Owner.OnBranched.Broadcast(ToText(Info.token), static_cast<int32>(Info.turns));
}

void FAnimeGamerLink::failed(const ag_error& Error)
{
	if (Game->ticket() != 0)
	{
		Screen.end(Game->ticket());
	}
	const FString Code = ToText(Error.code), Text = ToText(Error.text), WhatToDo = ToText(Error.what_to_do);
	UE_LOG(LogAnimeGamer, Warning, TEXT("%s: %s; %s"), *Code, *Text, *WhatToDo);
	Owner.OnError.Broadcast(Code, Text, WhatToDo, ToAnswers(Error.answers, Error.answer_count));
}

animegamer_unreal::Game* UAnimeGamerGame::Find()
{
	if (Link.IsValid())
	{
		return Link->Game;
	}
	const UAnimeGamerSubsystem* const Subsystem = GetTypedOuter<UAnimeGamerSubsystem>();
	if (Subsystem != nullptr && !Subsystem->RefusalCode.IsEmpty())
	{
		OnError.Broadcast(Subsystem->RefusalCode, Subsystem->RefusalText, Subsystem->RefusalWhatToDo, {});
	}
	else
	{
		OnError.Broadcast(TEXT("closed"), TEXT("the game instance has ended"), TEXT("get a game from the new one, and Resume the token"), {});
	}
	return nullptr;
}

bool UAnimeGamerGame::Say(const FString& Instruction)
{
	animegamer_unreal::Game* const Game = Find();
	return Game != nullptr && Game->say(TCHAR_TO_UTF8(*Instruction));
}

bool UAnimeGamerGame::Replay(int32 Turn)
{
	animegamer_unreal::Game* const Game = Find();
	return Game != nullptr && Game->replay(Turn);
}

void UAnimeGamerGame::Cancel()
{
	if (Link.IsValid())
	{
		Link->Game->cancel();
	}
}

void UAnimeGamerGame::Rewind(int32 Turn)
{
	if (animegamer_unreal::Game* const Game = Find())
	{
		Game->rewind(Turn);
	}
}

void UAnimeGamerGame::Branch(int32 Turn)
{
	if (animegamer_unreal::Game* const Game = Find())
	{
		Game->branch(Turn);
	}
}

void UAnimeGamerGame::List(int32 Before)
{
	if (animegamer_unreal::Game* const Game = Find())
	{
		Game->list(Before);
	}
}

void UAnimeGamerGame::CloseGame()
{
	if (animegamer_unreal::Game* const Game = Find())
	{
		Game->close();
	}
}

void UAnimeGamerGame::Resume(const FString& InToken)
{
	if (Find() != nullptr)
	{
		const TSharedPtr<animegamer_unreal::Connection> Connection = Link->Connection;
		Link = MakeShared<FAnimeGamerLink>(*this, Connection, InToken);
		Link->Screen.play(ToPlayMode(Playback), RestSeconds, FadeSeconds, bClipsAtOnce);
		Link->Screen.pause(bPaused);
		Texture = UnderTexture = nullptr;
		Blend = 1.0f;
		ShownTurn = 0;
		ShownIndex = -1;
	}
}

void UAnimeGamerGame::Wish(const TArray<FString>& Instructions)
{
	if (animegamer_unreal::Game* const Game = Find())
	{
		std::vector<std::string> Texts;
		for (const FString& Instruction : Instructions)
		{
			Texts.push_back(TCHAR_TO_UTF8(*Instruction));
		}
		Game->wish(Texts);
	}
}

void UAnimeGamerGame::SetPlayback(EAnimeGamerPlayback InPlayback, float InRestSeconds, float InFadeSeconds, bool bAtOnce)
{
	Playback = InPlayback;
	RestSeconds = InRestSeconds;
	FadeSeconds = InFadeSeconds;
	bClipsAtOnce = bAtOnce;
	if (Link.IsValid())
	{
		Link->Screen.play(ToPlayMode(Playback), RestSeconds, FadeSeconds, bClipsAtOnce);
	}
}

void UAnimeGamerGame::SetPaused(bool bInPaused)
{
	bPaused = bInPaused;
	if (Link.IsValid())
	{
		Link->Screen.pause(bPaused);
	}
}

bool UAnimeGamerGame::StartFromPicture(const TArray<uint8>& Picture, const FString& Motion)
{
	animegamer_unreal::Game* const Game = Find();
	return Game != nullptr && Game->open_picture(Picture.GetData(), static_cast<size_t>(Picture.Num()), TCHAR_TO_UTF8(*Motion));
}

bool UAnimeGamerGame::StartFromPictureFile(const FString& File, const FString& Motion)
{
	TArray<uint8> Picture;
	if (!FFileHelper::LoadFileToArray(Picture, *File))
	{
		OnError.Broadcast(TEXT("bad_argument"), File + TEXT(" cannot be read"), TEXT("give the whole path of a PNG, JPEG or WebP file"), {});
		return false;
	}
	return StartFromPicture(Picture, Motion);
}

TArray<FString> UAnimeGamerGame::GetOffers() const
{
	return Link.IsValid() ? ToTexts(Link->Game->offers()) : TArray<FString>();
}

int64 UAnimeGamerGame::NextTicket() const
{
	return Link.IsValid() ? Link->Game->next_ticket() : 0;
}

int64 UAnimeGamerGame::Ticket() const
{
	return Link.IsValid() ? Link->Game->ticket() : 0;
}

int64 UAnimeGamerGame::TurnHeard() const
{
	return Link.IsValid() ? Link->Game->turn() : 0;
}

bool UAnimeGamerGame::CancelTicket(int64 InTicket)
{
	return Link.IsValid() && Link->Game->cancel(InTicket);
}

void UAnimeGamerGame::ShowPictures()
{
	if (!Link.IsValid())
	{
		return;
	}
	const TSharedPtr<FAnimeGamerLink> Now = Link;
	const animegamer_unreal::Screen::Shown Shown = Now->Screen.advance(FPlatformTime::Seconds());
	if (Shown.ended != 0)
	{
		Now->Game->hear(Shown.ended, Shown.ended_turn);
		OnClipEnd.Broadcast(static_cast<int32>(Shown.ended_turn));
	}
	if (Link != Now || Shown.picture == nullptr)
	{
		return;
	}
	Blend = static_cast<float>(Shown.blend);
	if (Shown.under != nullptr && Shown.under != Now->Under)
	{
		UnderTexture = Upload(UnderTexture, Now->Screen.hold(*Shown.under));
	}
	Now->Under = Shown.under;
	if (Shown.ticket == Now->ShownTicket && Shown.picture->index == Now->ShownIndex)
	{
		return;
	}
	Now->ShownTicket = Shown.ticket;
	Now->ShownIndex = Shown.picture->index;
	Texture = Upload(Texture, Now->Screen.hold(*Shown.picture));
	ShownTurn = static_cast<int32>(Shown.picture->turn);
	ShownIndex = static_cast<int32>(Shown.picture->index);
	Now->Game->hear(Shown.ticket, Shown.picture->turn);
	OnFrame.Broadcast(Texture, ShownTurn, ShownIndex);
}
